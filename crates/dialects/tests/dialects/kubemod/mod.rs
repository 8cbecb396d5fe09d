//! ModRules.

mod modrule;
mod modrule_cases;
mod modrule_random;
mod modrule_recorded;
