//! What Secrets hold is not shown, in whatever form a plan is printed; that it changes is.

use kiln_studio::hide_secret_values;

use super::Plan;

/// Hides the values of all Secrets in a plan.
pub(super) fn hide(plan: &mut Plan) {
    for planned in &mut plan.now.changes {
        hide_secret_values(&planned.target, planned.before.as_mut(), planned.after.as_mut());
    }
    for write in &mut plan.next_write {
        hide_secret_values(&write.target, Some(&mut write.before), Some(&mut write.after));
    }
}
