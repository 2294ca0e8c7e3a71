//! stub
use super::Exit;
/// Args.
#[derive(clap::Args)]
pub struct DemoArgs {}
/// Run.
pub async fn run(_: DemoArgs) -> Exit {
    Exit::Failed
}
