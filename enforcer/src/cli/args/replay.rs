//! Arguments of `replay`.

use std::path::PathBuf;

use super::TableOrJson;

const HELP: &str = "\
Each turn is taken on its own: from what was seen then, the grants, and what was done before.
With --policy it is still the host that the recorded configuration had made, so the plans of several turns
do not add up: a step that was never carried out is planned again in the next turn.

Words are not compared. Bytes and misplaced memory are as the plan has them; pages that cannot be moved
are not known beforehand. Widening and the moves of cold pages are decided between the turns, and are
not taken again.

Exit codes:
  0   every turn comes out as it was recorded; a recording that ends in the middle of a turn is one that
      ends before it
  1   some do not
  2   could not determine: no such file, a file that is damaged, or one of another version
  64  wrong usage: an unknown flag, a policy that is not valid

Examples:
  numa-enforcer replay turns.rec
  numa-enforcer replay turns.rec --policy stricter.toml
  numa-enforcer replay turns.rec -o json | jq '.turns[].new[]'";

/// Arguments of `replay`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  numa-enforcer replay turns.rec
  numa-enforcer replay turns.rec --policy stricter.toml

Exit codes: 0 all the same, 1 some turns differ, 2 could not be read, 64 usage.",
after_long_help = HELP)]
pub struct ReplayArgs {
    /// What `run --record` has written.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Ask what this configuration (TOML, as for `run`) would have done in each turn
    /// [default: the recorded one]
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// How to show it.
    #[arg(short, long, value_enum, default_value = "table")]
    pub output: TableOrJson,
}
