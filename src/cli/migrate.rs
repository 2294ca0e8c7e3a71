//! `opledger migrate`

use super::{Exit, client::block_on, output, settings::MigrateArgs};
use crate::{store, telemetry};

/// Brings the schema up to date.
pub fn run(args: &MigrateArgs) -> Exit {
    let config = match args.config() {
        Ok(config) => config,
        Err(faults) => {
            faults.0.iter().for_each(output::error);
            return Exit::Usage;
        }
    };
    telemetry::init_logs(config.log_format, &config.log_level);
    match block_on(store::migrate::migrate(config.database_url.expose())) {
        Ok(report) => {
            output::line(format!("{}: {report}", config.database_url));
            Exit::Ok
        }
        Err(error) => {
            output::error(format!("cannot migrate {}: {error}", config.database_url));
            Exit::Failed
        }
    }
}
