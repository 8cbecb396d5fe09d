//! Writes the status of policies: whether their rules act. [`kiln_replica::status`] says what it is.

use std::collections::BTreeMap;
use std::time::Duration;

use kiln_cluster::Call;
use kiln_object::{Gvk, ObjectId};
use kiln_replica::scan_permissions;
use kiln_replica::status::{Admission, StatusBasis, StatusWriter};

use crate::calls::carry_out;
use crate::client::Client;
use crate::policy_store::{Registry, StoredPolicy};
use crate::state::AppState;

/// How often a process without webhooks looks whether another one has them.
const LOOK: Duration = Duration::from_secs(5);

/// Keeps the status of all policies as it should be, until the process is to end.
pub(crate) async fn keep(shared: AppState, client: Client, with_webhooks: bool) {
    let mut registry = shared.registry.clone();
    let mut webhooks = shared.progress.webhooks.subscribe();
    let mut troubles = shared.progress.troubles.subscribe();
    let mut kinds = shared.kinds.clone();
    let mut shutdown = shared.shutdown.clone();
    let mut writer = StatusWriter::default();
    loop {
        let stored = registry.borrow_and_update().clone();
        let registered = webhooks.borrow_and_update().clone();
        let troubled = troubles.borrow_and_update().clone();
        let known = kinds.borrow_and_update().clone();
        let admission = match with_webhooks {
            true => Admission::Here(&registered),
            false if is_admission_elsewhere(&shared, &client).await => Admission::Elsewhere,
            false => Admission::Nowhere,
        };
        count(&shared, &stored);
        let troubles_now = troubled.as_ref();
        let basis =
            StatusBasis { stored: &stored, admission, troubles: troubles_now, kinds: &known };
        let round = writer.write(&client, &shared.clients.controller, &basis).await;
        if round.expects_kinds {
            shared.rumours.spread();
        }
        for news in round.happened {
            // Events are for people: when there are too many of them, some are left out.
            let _ = shared.news.happened.try_send(news);
        }
        for (policy, error) in &round.failed {
            tracing::warn!(%policy, %error, "cannot write the status");
        }
        let failed = !round.failed.is_empty();
        let pause = match (failed, with_webhooks) {
            (true, _) => Duration::from_secs(2),
            (false, true) => Duration::from_millis(scan_permissions::COUNTS),
            (false, false) => LOOK,
        };
        tokio::select! {
            changed = registry.changed() => if changed.is_err() { return },
            changed = webhooks.changed() => if changed.is_err() { return },
            changed = troubles.changed() => if changed.is_err() { return },
            changed = kinds.changed() => if changed.is_err() { return },
            _ = shutdown.changed() => return,
            () = tokio::time::sleep(pause), if failed || round.lacks || !with_webhooks => {}
        }
    }
}

/// Whether some process answers requests: then there is a webhook for policies.
async fn is_admission_elsewhere(shared: &AppState, client: &Client) -> bool {
    let kind = Gvk::new("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration");
    let [_, _, (_, name), ..] = shared.options.names.webhook_configurations();
    let call = Call::Get(ObjectId::new(kind, "", &name));
    let kinds = shared.kinds.borrow().clone();
    carry_out(client, &kinds, &call).await.is_ok()
}

fn count(shared: &AppState, stored: &Registry) {
    let count = |wanted: fn(&StoredPolicy) -> bool| {
        stored.policies.iter().filter(|policy| wanted(policy)).count()
    };
    let broken = count(StoredPolicy::is_broken);
    let not_run = count(|policy| policy.runs_nothing().is_some());
    let sound = stored.policies.len() - broken - not_run;
    #[allow(clippy::cast_precision_loss, reason = "a count for people")]
    for (state, number) in [("broken", broken), ("not run", not_run), ("sound", sound)] {
        shared.metrics.set("kiln_policies", &[("state", state)], number as f64);
    }
    let mut not_run: BTreeMap<&str, u32> = BTreeMap::new();
    for rule in stored.policies.iter().flat_map(|policy| policy.not_run.iter()) {
        *not_run.entry(rule.operation()).or_default() += 1;
    }
    shared.metrics.clear("kiln_rules_not_run");
    for (operation, number) in not_run {
        let labels = [("operation", operation)];
        shared.metrics.set("kiln_rules_not_run", &labels, f64::from(number));
    }
}
