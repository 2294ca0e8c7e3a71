//! Every cell of the state table, and the rules below it, as one text table: played on the bare rules and,
//! through the engine and through gRPC, on each back end.
//!
//! A row: the history before `|` the step `|` the answer `|` the record after it `|` the events it wrote.

use crate::{
    harness,
    over_grpc::OverGrpc,
    play,
    script::{Core, POLICIES, Player, Target, show, show_record},
};
use opledger::{ledger::Event, policy_file};
use std::sync::Arc;

const CELLS: &str = "
# Register
                                   | register          | created CLAIM        | pending v1             | registered
register                           | register          | replayed CLAIM       | pending v1             |
register claim:A                   | register          | replayed WAIT        | in_progress v2         |
register claim:A wait:31           | register          | replayed RECONCILE   | unknown v3             | lease_expired
register claim:A lost:1            | register          | replayed RECONCILE   | unknown v3             |
register claim:A ok:1:e1           | register          | replayed USE_RESULT  | succeeded v3           |
register claim:A fail:1:E1         | register          | replayed STOP        | failed_final v3        |
# Register of another request, in every status
register                           | register#2        | CONFLICT             | pending v1             | conflict_refused
register                           | register/mail     | CONFLICT             | pending v1             | conflict_refused
register claim:A                   | register#2        | CONFLICT             | in_progress v2         | conflict_refused
register claim:A wait:31           | register#2        | CONFLICT             | unknown v3             | lease_expired conflict_refused
register claim:A lost:1            | register#2        | CONFLICT             | unknown v3             | conflict_refused
register claim:A ok:1:e1           | register#2        | CONFLICT             | succeeded v3           | conflict_refused
register claim:A fail:1:E1         | register#2        | CONFLICT             | failed_final v3        | conflict_refused
# Register with a claim in the same step
                                   | register+A        | created lease1 EXECUTE  | in_progress v2      | registered claimed
register+A                         | register+A        | replayed lease1 EXECUTE | in_progress v2      |
register+A                         | register+B        | replayed WAIT        | in_progress v2         |
register                           | register+A        | replayed lease1 EXECUTE | in_progress v2      | claimed
register+A ok:1:e1                 | register+B        | replayed USE_RESULT  | succeeded v3           |
register+A lost:1                  | register+B        | replayed RECONCILE   | unknown v3             |
register+A                         | register#2+B      | CONFLICT             | in_progress v2         | conflict_refused
# Claim
                                   | claim:A           | NOT_FOUND            | none                   |
register                           | claim:A           | lease1 EXECUTE       | in_progress v2         | claimed
register claim:A                   | claim:B           | WAIT                 | in_progress v2         |
register claim:A wait:31           | claim:B           | RECONCILE            | unknown v3             | lease_expired
register claim:A lost:1            | claim:B           | RECONCILE            | unknown v3             |
register/same-key claim:A lost:1   | claim:B           | lease2 EXECUTE       | in_progress v4         | claimed
register/same-key claim:A wait:31  | claim:B           | lease2 EXECUTE       | in_progress v4         | lease_expired claimed
register/ask claim:A lost:1        | claim:B           | REVIEW               | unknown v3 review(policy) |
register claim:A ok:1:e1           | claim:B           | USE_RESULT           | succeeded v3           |
register claim:A fail:1:E1         | claim:B           | STOP                 | failed_final v3        |
register                           | claim!:A          | CONFLICT             | pending v1             | conflict_refused
# Dispatch
                                   | dispatch:1        | NOT_FOUND            | none                   |
register                           | dispatch:1        | LEASE_LOST           | pending v1             |
register claim2:A                  | dispatch:1        | lease1 EXECUTE       | in_progress v3         | dispatched
register claim2:A dispatch:1       | dispatch:1        | replayed lease1 EXECUTE | in_progress v3      |
register claim:A                   | dispatch:1        | replayed lease1 EXECUTE | in_progress v2      |
register claim2:A                  | dispatch:9        | LEASE_LOST           | in_progress v2         |
register claim2:A wait:31          | dispatch:1        | lease1 EXECUTE       | in_progress v3         | dispatched
register claim2:A wait:31 observe  | dispatch:1        | LEASE_LOST           | pending v3             |
register claim2:A wait:901         | dispatch:1        | LEASE_LOST           | pending v3             | lease_expired
register claim:A lost:1            | dispatch:1        | LEASE_LOST           | unknown v3             |
register claim:A ok:1:e1           | dispatch:1        | LEASE_LOST           | succeeded v3           |
register claim:A fail:1:E1         | dispatch:1        | LEASE_LOST           | failed_final v3        |
# Renew
                                   | renew:1           | NOT_FOUND            | none                   |
register                           | renew:1           | LEASE_LOST           | pending v1             |
register claim:A                   | renew:1           | lease1 EXECUTE       | in_progress v3         | renewed
register claim:A wait:31           | renew:1           | lease1 EXECUTE       | in_progress v3         | renewed
register claim:A wait:31 observe   | renew:1           | LEASE_LOST           | unknown v3             |
register claim:A wait:901          | renew:1           | LEASE_LOST           | unknown v3             | lease_expired
register claim:A lost:1            | renew:1           | LEASE_LOST           | unknown v3             |
register claim:A ok:1:e1           | renew:1           | LEASE_LOST           | succeeded v3           |
register claim:A fail:1:E1         | renew:1           | LEASE_LOST           | failed_final v3        |
# Complete succeeded
                                   | ok:1:e1           | NOT_FOUND            | none                   |
register claim:A saw-absent@1      | ok:1:e1           | USE_RESULT           | succeeded v4           | succeeded
register                           | ok:1:e1           | LEASE_LOST           | pending v1             |
register claim:A                   | ok:1:e1           | USE_RESULT           | succeeded v3           | succeeded
register claim:A                   | ok:9:e1           | LEASE_LOST           | in_progress v2         |
register claim:A wait:31           | ok:1:e1           | USE_RESULT           | succeeded v3           | succeeded
register claim:A wait:31           | ok:9:e1           | LEASE_LOST           | unknown v3             | lease_expired
register claim:A lost:1            | ok:1:e1           | USE_RESULT           | succeeded v4           | succeeded
register claim:A ok:1:e1           | ok:1:e1           | replayed applied USE_RESULT | succeeded v3    |
register claim:A ok:1:e1           | ok:1              | replayed applied USE_RESULT | succeeded v3    |
register claim:A ok:1:e1           | ok:1:e2           | OUTCOME_CONFLICT     | succeeded v4 review(outcome_conflict) | outcome_conflict
register claim:A ok:1              | ok:1:e1           | OUTCOME_CONFLICT     | succeeded v4 review(outcome_conflict) | outcome_conflict
register claim:A fail:1:E1         | ok:1:e1           | OUTCOME_CONFLICT     | failed_final v4 review(outcome_conflict) | outcome_conflict
# Complete failed_final
                                   | fail:1:E1         | NOT_FOUND            | none                   |
register claim:A saw-absent@1      | fail:1:E1         | LEASE_LOST           | pending v3             |
register claim:A                   | fail:1:E1         | STOP                 | failed_final v3        | failed_final
register claim:A wait:31           | fail:1:E1         | STOP                 | failed_final v3        | failed_final
register claim:A lost:1            | fail:1:E1         | STOP                 | failed_final v4        | failed_final
register/same-key claim:A lost:1 claim:B | fail:1:E1   | LEASE_LOST           | in_progress v4         |
register/same-key claim:A lost:1 claim:B lost:2 | fail:1:E1 | LEASE_LOST     | unknown v5             |
register claim:A ok:1:e1           | fail:1:E1         | OUTCOME_CONFLICT     | succeeded v4 review(outcome_conflict) | outcome_conflict
register claim:A fail:1:E1         | fail:1:E1         | replayed applied STOP | failed_final v3       |
register claim:A fail:1:E1         | fail:1:E2         | ALREADY_TERMINAL     | failed_final v3        |
# MarkUnknown
                                   | lost:1            | NOT_FOUND            | none                   |
register claim:A saw-absent@1      | lost:1            | LEASE_LOST           | pending v3             |
register claim:A                   | lost:1            | RECONCILE            | unknown v3             | marked_unknown
register claim:A                   | lost:9            | LEASE_LOST           | in_progress v2         |
register claim:A wait:31           | lost:1            | RECONCILE            | unknown v3             | marked_unknown
register claim:A lost:1            | lost:1            | replayed RECONCILE   | unknown v3             |
register claim:A wait:31 observe   | lost:1:e1         | replayed RECONCILE   | unknown v4             | marked_unknown
register/same-key claim:A lost:1 claim:B | lost:1      | LEASE_LOST           | in_progress v4         |
register claim:A ok:1:e1           | lost:1            | ALREADY_TERMINAL     | succeeded v3           |
register claim:A fail:1:E1         | lost:1            | ALREADY_TERMINAL     | failed_final v3        |
# Reconcile: succeeded
                                   | saw-ok:e1         | NOT_FOUND            | none                   |
register                           | saw-ok:e1         | applied USE_RESULT   | succeeded v2           | succeeded
register claim:A                   | saw-ok:e1         | applied USE_RESULT   | succeeded v3           | succeeded
register claim:A wait:31           | saw-ok:e1         | applied USE_RESULT   | succeeded v4           | lease_expired succeeded
register claim:A lost:1            | saw-ok:e1         | applied USE_RESULT   | succeeded v4           | succeeded
register claim:A ok:1:e1           | saw-ok:e1         | replayed applied USE_RESULT | succeeded v3    |
register claim:A ok:1:e1           | saw-ok            | replayed applied USE_RESULT | succeeded v3    |
register claim:A ok:1:e1           | saw-ok:e2         | OUTCOME_CONFLICT     | succeeded v4 review(outcome_conflict) | outcome_conflict
register claim:A fail:1:E1         | saw-ok:e1         | OUTCOME_CONFLICT     | failed_final v4 review(outcome_conflict) | outcome_conflict
# Reconcile: failed
                                   | saw-failed        | NOT_FOUND            | none                   |
register                           | saw-failed        | applied STOP         | failed_final v2        | failed_final
register claim:A                   | saw-failed        | LEASE_LOST           | in_progress v2         |
register claim:A                   | saw-failed@1      | applied STOP         | failed_final v3        | failed_final
register claim:A wait:31           | saw-failed        | applied STOP         | failed_final v4        | lease_expired failed_final
register claim:A lost:1            | saw-failed        | applied STOP         | failed_final v4        | failed_final
register claim:A ok:1:e1           | saw-failed        | OUTCOME_CONFLICT     | succeeded v4 review(outcome_conflict) | outcome_conflict
register claim:A fail:1:E1         | saw-failed        | replayed applied STOP | failed_final v3       |
# Reconcile: absent
                                   | saw-absent        | NOT_FOUND            | none                   |
register                           | saw-absent        | replayed CLAIM       | pending v1             |
register claim:A                   | saw-absent        | LEASE_LOST           | in_progress v2         |
register claim:A                   | saw-absent@1      | applied CLAIM        | pending v3             | released
register claim:A saw-absent@1      | saw-absent@1      | replayed applied CLAIM | pending v3           |
register claim:A wait:31           | saw-absent@1      | RECONCILE            | unknown v4             | lease_expired checked
register claim:A wait:31           | saw-absent        | RECONCILE            | unknown v4             | lease_expired checked
register claim:A wait:91           | saw-absent        | applied CLAIM        | pending v4             | lease_expired released
register claim:A lost:1            | saw-absent        | RECONCILE            | unknown v4             | checked
register claim:A lost:1 wait:61    | saw-absent        | applied CLAIM        | pending v4             | released
register/mail claim:A lost:1 wait:61  | saw-absent     | RECONCILE            | unknown v4             | checked
register/blind claim:A lost:1 wait:61 | saw-absent     | RECONCILE            | unknown v4             | checked
register claim:A lost:1            | saw-absent@9      | LEASE_LOST           | unknown v3             |
register claim:A ok:1:e1           | saw-absent        | ALREADY_TERMINAL     | succeeded v3           |
register claim:A fail:1:E1         | saw-absent        | ALREADY_TERMINAL     | failed_final v3        |
# Reconcile: indeterminate
                                   | saw-nothing       | NOT_FOUND            | none                   |
register                           | saw-nothing       | CLAIM                | pending v1             |
register claim:A                   | saw-nothing       | LEASE_LOST           | in_progress v2         |
register claim:A                   | saw-nothing@1     | RECONCILE            | unknown v3             | marked_unknown
register claim:A wait:31           | saw-nothing       | RECONCILE            | unknown v4             | lease_expired checked
register claim:A lost:1            | saw-nothing       | RECONCILE            | unknown v4             | checked
register claim:A lost:1 wait:901   | saw-nothing       | REVIEW               | unknown v5 review(unresolved) | escalated checked
register claim:A ok:1:e1           | saw-nothing       | ALREADY_TERMINAL     | succeeded v3           |
register claim:A fail:1:E1         | saw-nothing       | ALREADY_TERMINAL     | failed_final v3        |
# ClaimCheck
                                   | check:P           | NOT_FOUND            | none                   |
register                           | check:P           | CLAIM                | pending v1             |
register claim:A                   | check:P           | WAIT                 | in_progress v2         |
register claim:A wait:31           | check:P           | RECONCILE            | unknown v3             | lease_expired
register claim:A lost:1            | check:P           | RECONCILE            | unknown v3             |
register claim:A lost:1 wait:6     | check:P           | check1 RECONCILE     | unknown v4             | check_claimed
register claim:A ok:1:e1           | check:P           | USE_RESULT           | succeeded v3           |
register claim:A fail:1:E1         | check:P           | STOP                 | failed_final v3        |
# Nothing but time
                                   | observe           | NOT_FOUND            | none                   |
register                           | observe           | CLAIM                | pending v1             |
register claim:A                   | observe           | WAIT                 | in_progress v2         |
register claim:A wait:31           | observe           | RECONCILE            | unknown v3             | lease_expired
register claim2:A wait:31          | observe           | CLAIM                | pending v3             | lease_expired
register claim2:A dispatch:1 wait:31 | observe         | RECONCILE            | unknown v4             | lease_expired
register claim:A lost:1 wait:901   | observe           | REVIEW               | unknown v4 review(unresolved) | escalated
register/keep claim:A lost:1 wait:901 | observe        | RECONCILE            | unknown v3             |
register claim:A wait:1000         | observe           | REVIEW               | unknown v3 review(unresolved) | lease_expired
";

const RULES: &str = "
# A claim id names one attempt at most.
register claim:A                   | claim:A           | replayed lease1 EXECUTE | in_progress v2      |
register claim:A renew:1           | claim:A           | replayed lease1 EXECUTE | in_progress v3      |
register claim2:A wait:31          | claim:A           | replayed CLAIM       | pending v3             | lease_expired
register claim2:A wait:31 claim:B saw-absent@2 | claim:A | replayed CLAIM     | pending v5             |
register claim:A ok:1:e1           | claim:A           | replayed USE_RESULT  | succeeded v3           |
# Attempts with the same key end with the provider's memory of it.
register/same-key claim:A lost:1 wait:299 | claim:B    | lease2 EXECUTE       | in_progress v4         | claimed
register/same-key claim:A lost:1 wait:301 | claim:B    | RECONCILE            | unknown v3             |
register/same-key claim:A lost:1 wait:290 claim:B wait:11 | renew:2 | LEASE_LOST | unknown v5          | lease_expired
# An attempt that sent nothing does not make an earlier unknown one known.
register/same-key claim:A lost:1 claim2:B wait:31 | observe | CLAIM            | unknown v5             | lease_expired
register/same-key claim:A lost:1 claim:B | saw-absent@2 | CLAIM                | unknown v5             | released
# The unknown one's success is believed while a later attempt is under way; a second effect is told.
register/same-key claim:A lost:1 claim:B | ok:1:e1     | USE_RESULT           | succeeded v5           | succeeded
register/same-key claim:A lost:1 claim:B ok:1:e1 | ok:2:e2 | OUTCOME_CONFLICT | succeeded v6 review(outcome_conflict) | outcome_conflict
register/same-key claim:A lost:1 claim:B ok:1:e1 | ok:2:e1 | replayed applied USE_RESULT | succeeded v5 |
# Attempts are limited; then a person looks, and may release.
register claim:A saw-absent@1 claim:B saw-absent@2 claim:C saw-absent@3 | claim:D | REVIEW | pending v8 review(max_attempts) | escalated
register claim:A saw-absent@1 claim:B saw-absent@2 claim:C saw-absent@3 claim:D op-absent | claim:E | lease4 EXECUTE | in_progress v10 | claimed
# A person may settle in every direction.
register/ask claim:A lost:1        | op-ok:e1          | applied USE_RESULT   | succeeded v4           | succeeded
register/ask claim:A lost:1        | op-failed         | applied STOP         | failed_final v4        | failed_final
register/ask claim:A lost:1        | op-absent         | applied CLAIM        | pending v4             | released
register/ask claim:A lost:1        | op-nothing        | RECONCILE            | unknown v4             | checked
register/ask claim:A lost:1 wait:61 | saw-absent       | REVIEW               | unknown v4 review(policy) | checked
register/mail claim:A lost:1       | op-absent         | applied CLAIM        | pending v4             | released
register claim:A lost:1 wait:901 observe op-nothing | observe | RECONCILE      | unknown v5             |
register claim:A lost:1 wait:901 observe op-nothing wait:901 | observe | REVIEW | unknown v6 review(unresolved) | escalated
# What the provider says settles a review, too.
register claim:A lost:1 wait:901 observe | saw-ok:e1   | applied USE_RESULT   | succeeded v5           | succeeded
# A contradiction is acknowledged; the outcome stays; the repeat of the decision is recognised.
register claim:A ok:1:e1 ok:1:e2   | op-ok:e2          | applied USE_RESULT   | succeeded v5           | checked
register claim:A ok:1:e1 ok:1:e2 op-failed?4 | op-failed?4 | replayed applied USE_RESULT | succeeded v5 |
register claim:A ok:1:e1 ok:1:e2 op-ok:e1 | ok:1:e3    | OUTCOME_CONFLICT     | succeeded v6 review(outcome_conflict) | outcome_conflict
# A decision may be tied to a version.
register claim:A lost:1            | saw-ok:e1?2       | VERSION_MISMATCH     | unknown v3             |
register claim:A lost:1            | saw-ok:e1?3       | applied USE_RESULT   | succeeded v4           | succeeded
register claim:A lost:1 saw-ok:e1?3 | saw-ok:e1?3      | replayed applied USE_RESULT | succeeded v4    |
register claim:A lost:1 saw-nothing?3 | saw-nothing?3  | replayed RECONCILE   | unknown v4             |
register claim:A lost:1 wait:61 saw-absent?3 | saw-absent?3 | replayed applied CLAIM | pending v4      |
register claim:A ok:1:e1           | saw-ok:e2?1       | OUTCOME_CONFLICT     | succeeded v4 review(outcome_conflict) | outcome_conflict
# A late repeat of an absence releases nothing that it knows nothing of.
register claim:A saw-absent@1 claim:B lost:2 wait:61 | saw-absent@1 | replayed RECONCILE | unknown v5        |
register/ask claim:A lost:1 op-absent claim:B lost:2 | op-absent | replayed REVIEW | unknown v6 review(policy) |
register/ask claim:A lost:1 op-absent claim:B lost:2 | op-absent?6 | applied CLAIM | pending v7         | released
register/same-key claim:A lost:1 claim:B lost:2 wait:61 | saw-absent@1 | LEASE_LOST | unknown v5         |
# A late name for the effect is kept, and two names call a person.
register claim:A lost:1:e1         | lost:1:e1         | replayed RECONCILE   | unknown v3             |
register claim:A lost:1:e1         | lost:1:e2         | replayed REVIEW      | unknown v4 review(outcome_conflict) | outcome_conflict
register claim:A ok:1:e1           | lost:1:e2         | ALREADY_TERMINAL     | succeeded v4 review(outcome_conflict) | outcome_conflict
register/same-key claim:A lost:1:e1 claim:B | lost:2:e2 | REVIEW              | unknown v6 review(outcome_conflict) | marked_unknown outcome_conflict
# The provider's name for the effect survives, and a success without one keeps it.
register claim:A lost:1:e1 saw-ok  | ok:1:e1           | replayed applied USE_RESULT | succeeded v4    |
# One checker at a time; a repeated poll gets its lease again; a dead checker's is taken over.
register claim:A lost:1 wait:6 check:P | check:P       | replayed check1 RECONCILE | unknown v4        |
register claim:A lost:1 wait:6 check:P | check:Q       | RECONCILE            | unknown v4             |
register claim:A lost:1 wait:6 check:P wait:31 | check:Q | check2 RECONCILE   | unknown v5             | check_claimed
register claim:A lost:1 wait:6 check:P | renew:c1:60   | check1 RECONCILE     | unknown v5             | renewed
register claim:A lost:1 wait:6 check:P renew:c1:60 wait:31 | check:Q | RECONCILE | unknown v5          |
register claim:A lost:1 wait:6 check:P | saw-nothing@c1 | RECONCILE           | unknown v5             | checked
register claim:A lost:1 wait:6 check:P saw-nothing@c1 | saw-nothing@c1 | replayed RECONCILE | unknown v5 |
register claim:A lost:1 wait:6 check:P saw-nothing@c1 | check:Q | RECONCILE   | unknown v5             |
register claim:A lost:1 wait:61 check:P | saw-absent@c1 | applied CLAIM       | pending v5             | released
register claim:A lost:1 wait:6 check:P wait:31 check:Q | saw-nothing@c1 | LEASE_LOST | unknown v5     |
# What the late checker found is true all the same.
register claim:A lost:1 wait:6 check:P wait:31 check:Q | saw-ok:e1@c1 | applied USE_RESULT | succeeded v6 | succeeded
register claim:A lost:1 wait:6 check:P ok:1:e1 | saw-ok:e2@c1 | OUTCOME_CONFLICT | succeeded v6 review(outcome_conflict) | outcome_conflict
# A checker's token permits nothing but to report.
register claim:A lost:1 wait:6 check:P | ok:c1:e1      | LEASE_LOST           | unknown v4             |
register claim:A lost:1 wait:6 check:P | dispatch:c1   | LEASE_LOST           | unknown v4             |
# A deliverer takes what was stored for it, when it is due, two-step; what it did not send comes back later.
register!                          | deliver:P         | lease1 EXECUTE       | in_progress v2         | claimed
register                           | deliver:P         | CLAIM                | pending v1             |
register! deliver:P                | deliver:P         | replayed lease1 EXECUTE | in_progress v2      |
register! deliver:P                | deliver:Q         | WAIT                 | in_progress v2         |
register! deliver:P wait:31        | deliver:Q         | CLAIM                | pending v3             | lease_expired
register! deliver:P wait:31 observe wait:6 | deliver:Q | lease2 EXECUTE       | in_progress v4         | claimed
register! deliver:P saw-absent@1   | deliver:Q         | CLAIM                | pending v3             |
register! deliver:P dispatch:1 wait:31 | deliver:Q     | RECONCILE            | unknown v4             | lease_expired
# A finished operation's result is forgotten after its days; the outcome stays, and so does every answer.
register/brief claim:A ok:1:e1 wait:86390 | observe    | USE_RESULT           | succeeded v3           |
register/brief claim:A ok:1:e1 wait:86401 | observe    | USE_RESULT           | succeeded v4 forgotten | result_forgotten
register/brief claim:A fail:1:E1 wait:86401 | observe  | STOP                 | failed_final v4 forgotten | result_forgotten
register/brief claim:A ok:1:e1 wait:86401 | register/brief | replayed USE_RESULT | succeeded v3        |
register/brief claim:A ok:1:e1 wait:86401 observe | observe | USE_RESULT      | succeeded v4 forgotten |
register/brief claim:A ok:1:e1 wait:86401 observe | register/brief | replayed USE_RESULT | succeeded v4 forgotten |
register/brief claim:A ok:1:e1 wait:86401 observe | register/brief#2 | CONFLICT | succeeded v4 forgotten | conflict_refused
register/brief claim:A ok:1:e1 wait:86401 observe | claim:B | USE_RESULT      | succeeded v4 forgotten |
register/brief claim:A ok:1:e1 wait:86401 observe | ok:1:e1 | replayed applied USE_RESULT | succeeded v4 forgotten |
register/brief claim:A fail:1:E1 wait:86401 observe | fail:1:E1 | replayed applied STOP | failed_final v4 forgotten |
register/brief claim:A ok:1:e1 wait:86401 observe | ok:1:e2 | OUTCOME_CONFLICT | succeeded v5 review(outcome_conflict) forgotten | outcome_conflict
register!/brief deliver:P dispatch:1 ok:1:e1 wait:86401 | observe | USE_RESULT | succeeded v5 forgotten | result_forgotten
# The key is forgotten after its own days: then it is a new operation.
register/brief claim:A ok:1:e1 wait:86401 observe wait:172799 | observe | NOT_FOUND | none            |
register/brief claim:A ok:1:e1 wait:86401 observe wait:172799 observe | register/brief+B | created lease1 EXECUTE | in_progress v2 | registered claimed
register/gone claim:A fail:1:E1 wait:86390 | observe   | STOP                 | failed_final v3        |
register/gone claim:A fail:1:E1 wait:86401 | observe   | NOT_FOUND            | none                   |
register/gone claim:A ok:1:e1 wait:86401 | register/gone | replayed USE_RESULT | succeeded v3          |
# What is long overdue loses its result first, then its key.
register/brief claim:A ok:1:e1 wait:999999 | observe   | USE_RESULT           | succeeded v4 forgotten | result_forgotten
register/brief claim:A ok:1:e1 wait:999999 observe | observe | NOT_FOUND      | none                   |
# Without such a policy everything stays.
register claim:A ok:1:e1 wait:9999999 | observe        | USE_RESULT           | succeeded v3           |
register/tidy claim:A ok:1:e1 wait:86401 observe wait:9999999 | observe | USE_RESULT | succeeded v4 forgotten |
# What is unresolved or in review is never forgotten.
register/brief wait:999999         | observe           | CLAIM                | pending v1             |
register/gone claim:A lost:1 wait:999999 observe | observe | REVIEW           | unknown v4 review(unresolved) |
register/brief claim:A ok:1:e1 ok:1:e2 wait:999999 | observe | USE_RESULT     | succeeded v4 review(outcome_conflict) |
register/brief claim:A ok:1:e1 ok:1:e2 wait:999999 op-ok:e1 | observe | USE_RESULT | succeeded v6 forgotten | result_forgotten
# A second name for the effect is two effects, until a person says otherwise.
register/same-key claim:A lost:1:e1 claim:B | ok:2:e2  | USE_RESULT           | succeeded v5 review(second_external_id) | succeeded
register claim:A lost:1:e1 wait:61 saw-absent claim:B | ok:2:e2 | USE_RESULT  | succeeded v6 review(second_external_id) | succeeded
# A result is judged by the policy of the recorded action type.
register/small claim:A             | ok:1:e1:\"0123456789abcdef\" | INVALID succeeded.result_json | in_progress v2 |
";

fn rows(table: &str) -> impl Iterator<Item = (&str, Vec<&str>)> {
    table
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| (line, line.split('|').map(str::trim).collect()))
}

/// The events that came after those; retention may have deleted some of them meanwhile.
fn new_events<'e>(before: &'e [Event], after: &'e [Event]) -> impl Iterator<Item = &'e Event> {
    let kept = after.iter().filter(|event| before.contains(event)).count();
    after.iter().skip(kept)
}

async fn play_table(target: &impl Target, name: &str, table: &str) {
    let mut failures = Vec::new();
    for (number, (line, row)) in rows(table).enumerate() {
        let [history, step, answer, record, events] = row[..] else { panic!("five columns: {line}") };
        let mut player = Player::new(target, &format!("{name}-{number}"));
        for step in history.split_whitespace() {
            player.step(step).await;
        }
        let before = target.events(&player.key).await;
        let answer = &*target.visible(step, answer);
        let got_answer = show(&player.step(step).await.expect("a command, not only time"));
        let got_record = show_record(target.record(&player.key).await.as_ref());
        let got_events: Vec<_> =
            new_events(&before, &target.events(&player.key).await).map(|event| event.kind.as_str()).collect();
        let got_events = got_events.join(" ");
        if (answer, record, events) != (&*got_answer, &*got_record, &*got_events) {
            failures.push(format!("{line}\n    got: {got_answer} | {got_record} | {got_events}"));
        }
    }
    assert!(failures.is_empty(), "{name}:\n{}", failures.join("\n"));
}

#[tokio::test]
async fn every_cell_by_the_rules_alone() {
    let (policies, _) = policy_file::parse(POLICIES).expect("policies");
    let policies = Arc::new(policies);
    play_table(&Core::new(policies.clone()), "cells", CELLS).await;
    play_table(&Core::new(policies), "rules", RULES).await;
}

#[test]
fn every_cell_on_each_back_end() {
    harness::on_each_store(|_, store| async {
        let target = play::on(store, POLICIES);
        play_table(&target, "cells", CELLS).await;
        play_table(&target, "rules", RULES).await;
        target.engine.stop().await;
    });
}

#[test]
fn every_cell_through_grpc() {
    harness::on_each_store(|_, store| async {
        let target = OverGrpc::on(store, POLICIES).await;
        play_table(&target, "cells", CELLS).await;
        play_table(&target, "rules", RULES).await;
        target.stop().await;
    });
}

/// Conflicts are kept a hundred times; after that they are only counted, so that a looping agent cannot
/// fill the disk.
#[tokio::test]
async fn conflict_events_are_kept_a_hundred_times() {
    let (policies, _) = policy_file::parse(POLICIES).expect("policies");
    let core = Core::new(Arc::new(policies));
    let mut player = Player::new(&core, "looping");
    player.step("register").await;
    for _ in 0..150 {
        let answer = player.step("register#2").await.unwrap();
        assert_eq!(show(&answer), "CONFLICT");
    }
    assert_eq!(core.events(&player.key).await.len(), 101);
    let record = core.record(&player.key).await.unwrap();
    assert_eq!((record.state.conflict_count, record.state.version), (150, 1));
}
