//! KubeMod's ModRule: Patch and Reject rules, to the newest release, and the field names of older ones.
//!
//! | module | holds |
//! |---|---|
//! | `compile` | a document to a rule |
//! | `items` | the items of `match` and `patch` |
//! | `overlap` | rules that write the same place of the same objects |
//! | `structure` | values that count on objects to write structure |

mod compile;
mod items;
mod overlap;
mod structure;

pub(crate) use compile::compile;
pub(crate) use overlap::warnings as overlaps;
