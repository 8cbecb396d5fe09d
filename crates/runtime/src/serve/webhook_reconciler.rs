//! Keeps what answers, what is served and what the API server knows as policies need it.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kiln_admission::webhooks::{self, Address};
use kiln_admission::{Hooks, Settings};
use kiln_certificates::{CertificateError, CertificateNames, Certificates, Stored, validity};
use kiln_cluster::{ApiError, Call, Reason};
use kiln_object::{Gvk, Kinds, ObjectId, metadata};
use kiln_replica::native_policies::is_generated;
use kiln_replica::webhooks::{PublishError, PublishedWebhooks, registered, replacing};
use kiln_services::Services;
use kiln_value::{Str, Value};
use tokio::sync::watch;

use super::AdmissionState;
use super::tls::{Served, TlsError, is_signed};
use crate::calls::carry_out;
use crate::policy_store::Registry;
use crate::state::AppState;

/// How often everything is compared with what the cluster has, if nothing else happens.
const COMPARE: Duration = Duration::from_secs(30);
/// How long to wait after a failure.
const AGAIN: Duration = Duration::from_secs(2);
/// The shortest pause between two looks at certificates.
const LEAST_PAUSE: Duration = Duration::from_secs(1);
/// How long to wait before certificates are stored that could not be.
const STORE_AGAIN: Duration = Duration::from_secs(5);
/// How long an API server takes at most, as a rule, to act on a new configuration.
const IN_FORCE: Duration = Duration::from_millis(150);
/// How often a write is tried again because of a conflict.
const TRIES: usize = 5;

/// Keeps everything until the process is to end.
pub(crate) async fn keep(
    shared: AppState,
    desk: &watch::Sender<Arc<AdmissionState>>,
    served: &Served,
) {
    let mut registry = shared.registry.clone();
    let mut kinds = shared.kinds.clone();
    let mut keeper = WebhookReconciler::new(shared.clone());
    shared.health.bad("webhooks", "not registered yet");
    loop {
        let stored = registry.borrow_and_update().clone();
        let known = kinds.borrow_and_update().clone();
        let mut wait = COMPARE;
        if stored.complete {
            let hooks = keeper.lay_out(&stored, &known, desk);
            if let Err(error) = keeper.certify(&known, served).await {
                tracing::warn!(%error, "cannot load the serving certificate");
                shared.health.bad("certificates", error.to_string());
                wait = AGAIN;
            } else {
                shared.health.good("certificates", None);
                match keeper.publish(&hooks, &stored, &known).await {
                    Ok(()) => {
                        shared.health.good("webhooks", None);
                        // API servers know where to ask, and go on to do so.
                        shared.health.can_do_without("webhooks");
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot update the webhook configurations");
                        shared.health.bad("webhooks", error.to_string());
                        wait = AGAIN;
                    }
                }
            }
            wait = wait.min(keeper.until_renewal());
        }
        tokio::select! {
            changed = registry.changed() => if changed.is_err() { return std::future::pending().await },
            changed = kinds.changed() => if changed.is_err() { return std::future::pending().await },
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Serves a certificate that is self-signed: enough for health and metrics.
pub(crate) fn serve_own_certificate(shared: &AppState, served: &Served) {
    let made = Certificates::ensure(&Stored::default(), &names(shared), now());
    let set = made.map_err(ServingError::Make).and_then(|made| Ok(served.set(&made.serving)?));
    if let Err(error) = set {
        shared.health.bad("server", error.to_string());
    }
}

/// Removes the webhook configurations, so that no request waits for a process that is gone.
pub(crate) async fn take_back(shared: &AppState) {
    let kinds = shared.kinds.borrow().clone();
    for (kind, name) in shared.options.names.webhook_configurations() {
        let id = ObjectId::new(Gvk::new("admissionregistration.k8s.io/v1", kind), "", &name);
        let gone = carry_out(&shared.clients.admission, &kinds, &Call::delete(id)).await;
        if let Err(error) = gone
            && error.reason != Reason::NotFound
        {
            tracing::warn!(%name, %error, "cannot remove a webhook configuration");
        }
    }
}

/// Why no certificate is served that API servers trust.
#[derive(Debug, thiserror::Error)]
enum ServingError {
    #[error("{0}")]
    ReadSecret(ApiError),
    #[error("{0}")]
    StoreSecret(ApiError),
    #[error(transparent)]
    Make(CertificateError),
    #[error(transparent)]
    Load(#[from] TlsError),
    #[error(
        "the authority in Secret {authority} has not signed the certificate in Secret {serving}"
    )]
    NotSigned { authority: String, serving: String },
    #[error("the serving certificate has expired: {0}")]
    Expired(Arc<ServingError>),
    #[error("cannot get the serving certificates: {0}")]
    Missing(Arc<ServingError>),
}

struct WebhookReconciler {
    shared: AppState,
    settings: Settings,
    warned: Vec<String>,
    /// Exceptions that do not hold.
    passed_over: Vec<Str>,
    names: CertificateNames,
    /// The name that API servers call.
    called: String,
    address: Address,
    certificates: Option<Certificates>,
    /// A certificate is served that is self-signed.
    serves_own: bool,
    /// The certificates are those of this process, and not stored.
    unstored: bool,
    /// Why the Secrets were no good when they were last looked at, and when to look again.
    failed: Option<(Arc<ServingError>, Instant)>,
    /// When the Secrets were last read.
    certified: Option<Instant>,
    published: PublishedWebhooks,
}

impl WebhookReconciler {
    fn new(shared: AppState) -> Self {
        let namespace = shared.options.namespace.as_str();
        let address = match &shared.options.webhook_url {
            Some(url) => Address::Url(url.clone()),
            None => Address::Service {
                namespace: namespace.into(),
                name: shared.options.service.as_str().into(),
                port: 443,
            },
        };
        let names = names(&shared);
        WebhookReconciler {
            settings: shared.options.settings(),
            warned: Vec::new(),
            passed_over: Vec::new(),
            called: host(&shared).unwrap_or_else(|| names.of_service()),
            names,
            address,
            certificates: None,
            serves_own: false,
            unstored: false,
            failed: None,
            certified: None,
            published: PublishedWebhooks::default(),
            shared,
        }
    }

    /// Puts the rules that are stored in the place of those that answered before.
    fn lay_out(
        &mut self,
        stored: &Registry,
        kinds: &Kinds,
        desk: &watch::Sender<Arc<AdmissionState>>,
    ) -> Arc<AdmissionState> {
        let (settings, warnings) = self.settings.read(stored.config.as_ref());
        if warnings != self.warned {
            for warning in &warnings {
                tracing::warn!(%warning, "keeping the previous value of a setting");
            }
            self.warned = warnings;
        }
        // The API server checks objects for these itself.
        let others = stored.policies.iter().filter(|policy| !is_generated(&policy.object));
        let sound = others.filter_map(|policy| policy.compiled.clone().ok());
        let exceptions = settings.in_force(&stored.exceptions);
        let others = stored.exceptions.iter().filter(|exception| !settings.holds(exception));
        let others: Vec<Str> = others.map(|exception| exception.name.clone()).collect();
        if others != self.passed_over {
            for exception in &others {
                tracing::warn!(%exception, "does not hold: its namespace is not in kiln.exceptionNamespaces");
            }
            self.passed_over = others;
        }
        let hooks = Hooks::new(sound, &exceptions, kinds, &settings);
        self.settings = settings.clone();
        let services = Services::new(self.shared.options.services.clone().and(&settings.services));
        let authors = Arc::new(stored.authors(settings.authors));
        let laid = Arc::new(AdmissionState { hooks, settings, services, authors });
        desk.send_replace(Arc::clone(&laid));
        laid
    }

    /// Writes what differs, and tells which policies are registered.
    async fn publish(
        &mut self,
        desk: &AdmissionState,
        stored: &Registry,
        kinds: &Kinds,
    ) -> Result<(), PublishError> {
        let Some(certificates) = &self.certificates else { return Ok(()) };
        let bundle = certificates.ca_bundle();
        let wanted = webhooks::configurations(&desk.hooks, &self.settings, &self.address, &bundle);
        let mut changed = false;
        for configuration in &wanted {
            let admission = &self.shared.clients.admission;
            let wrote = self.published.ensure(admission, kinds, configuration).await?;
            if wrote {
                let name = metadata::name(configuration).unwrap_or_default();
                tracing::info!(%name, "webhook configuration written");
            }
            changed |= wrote;
        }
        if changed {
            tokio::time::sleep(IN_FORCE).await;
        }
        let registered = registered(stored, kinds);
        self.shared.progress.webhooks.send_if_modified(|known| {
            let differs = *known != registered;
            *known = registered;
            differs
        });
        Ok(())
    }

    /// Makes sure that the certificates that are served are good.
    async fn certify(&mut self, kinds: &Kinds, served: &Served) -> Result<(), ServingError> {
        let now = now();
        // Another replica, or a user with a certificate of their own, may have changed the Secrets.
        let read_lately = self.certified.is_some_and(|time| time.elapsed() < COMPARE);
        if read_lately && self.certificates.as_ref().is_some_and(|held| now < held.next) {
            return Ok(());
        }
        if let Some((why, again)) = &self.failed
            && Instant::now() < *again
        {
            let why = Arc::clone(why);
            return self.go_on_without(&why, served, now);
        }
        self.certified = Some(Instant::now());
        let found = self.secrets_hold(now, kinds).await;
        match found.and_then(|made| self.serve(served, made)) {
            Ok(()) => {
                (self.failed, self.unstored) = (None, false);
                Ok(())
            }
            Err(why) => {
                let why = Arc::new(why);
                let is_good = self.certificates.as_ref().is_some_and(|held| now < held.end());
                let went_on = self.go_on_without(&why, served, now);
                let pause = match went_on {
                    Err(_) => AGAIN,
                    Ok(()) if self.unstored => STORE_AGAIN,
                    Ok(()) => COMPARE,
                };
                if self.unstored {
                    tracing::warn!(
                        %why,
                        "cannot store the certificates; they are lost when this process ends"
                    );
                } else if is_good {
                    tracing::warn!(%why, "cannot get certificates; serving the previous ones");
                }
                self.failed = Some((why, Instant::now() + pause));
                went_on
            }
        }
    }

    /// Serves what it has when the Secrets are invalid.
    fn go_on_without(
        &mut self,
        why: &Arc<ServingError>,
        served: &Served,
        now: i64,
    ) -> Result<(), ServingError> {
        match &self.certificates {
            Some(held) if now < held.end() => return Ok(()),
            Some(_) if !self.unstored => {
                return Err(ServingError::Expired(Arc::clone(why)));
            }
            _ => {}
        }
        // Other replicas serve what is stored: API servers must not trust something else. The owner of
        // the process is answered all the same.
        if self.shared.options.webhook_url.is_none() {
            if !std::mem::replace(&mut self.serves_own, true) {
                serve_own_certificate(&self.shared, served);
            }
            return Err(ServingError::Missing(Arc::clone(why)));
        }
        let made = Certificates::ensure(&Stored::default(), &self.names, now)
            .map_err(ServingError::Make)?;
        self.unstored = true;
        // They are to be stored as soon as that is possible.
        self.serve(served, Certificates { next: now, ..made })
    }

    /// What the Secrets hold, which are written when that is not good.
    async fn secrets_hold(&self, now: i64, kinds: &Kinds) -> Result<Certificates, ServingError> {
        let read = ServingError::ReadSecret;
        let mut tries = 0;
        loop {
            let authority = self.read(&self.names.authority_secret(), kinds).await.map_err(read)?;
            let serving = self.read(&self.names.serving_secret(), kinds).await.map_err(read)?;
            let secrets = Stored::read(authority.as_ref(), serving.as_ref());
            let made = Certificates::ensure_called(&secrets, &self.names, &self.called, now)
                .map_err(ServingError::Make)?;
            // Both Secrets are renewed one after the other.
            if made.are_given() && !is_signed(&made, &self.called, now) {
                return Err(ServingError::NotSigned {
                    authority: self.names.authority_secret(),
                    serving: self.names.serving_secret(),
                });
            }
            if !made.changed {
                return Ok(made);
            }
            let [first, second] = made.secrets(&self.names);
            let mut stored = self.store(&first, authority.as_ref(), kinds).await;
            if stored.is_ok() {
                stored = self.store(&second, serving.as_ref(), kinds).await;
            }
            match stored {
                Ok(()) => {
                    tracing::info!("stored new certificates");
                    return Ok(made);
                }
                // Another replica was faster: its certificates are as good.
                Err(error)
                    if tries + 1 < TRIES
                        && matches!(error.reason, Reason::Conflict | Reason::AlreadyExists) =>
                {
                    tries += 1;
                }
                Err(error) => return Err(ServingError::StoreSecret(error)),
            }
        }
    }

    fn serve(&mut self, served: &Served, made: Certificates) -> Result<(), ServingError> {
        served.set(&made.serving)?;
        if let Some((_, end)) = validity(&made.serving.certificates).first() {
            #[allow(clippy::cast_precision_loss, reason = "whole seconds are kept")]
            self.shared.metrics.set("kiln_certificate_end_seconds", &[], *end as f64);
        }
        self.certificates = Some(made);
        Ok(())
    }

    async fn read(&self, name: &str, kinds: &Kinds) -> Result<Option<Value>, ApiError> {
        let id = ObjectId::new(Gvk::new("v1", "Secret"), &self.names.namespace, name);
        match carry_out(&self.shared.clients.admission, kinds, &Call::Get(id)).await {
            Ok(reply) => Ok(reply.object()),
            Err(error) if error.reason == Reason::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn store(
        &self,
        object: &Value,
        there: Option<&Value>,
        kinds: &Kinds,
    ) -> Result<(), ApiError> {
        let call = replacing(object, there);
        carry_out(&self.shared.clients.admission, kinds, &call).await.map(drop)
    }

    /// How long until there is something to do about certificates.
    fn until_renewal(&self) -> Duration {
        let now = now();
        let times = self.certificates.iter().flat_map(|held| [held.next, held.end()]);
        let left = times.filter_map(|time| u64::try_from(time.saturating_sub(now)).ok());
        let times = left.filter(|left| *left > 0);
        let again =
            self.failed.iter().map(|(_, again)| again.saturating_duration_since(Instant::now()));
        times.map(Duration::from_secs).chain(again).min().unwrap_or(COMPARE).max(LEAST_PAUSE)
    }
}

/// The name or address in the URL that API servers call.
fn host(shared: &AppState) -> Option<String> {
    let uri: http::Uri = shared.options.webhook_url.as_deref()?.parse().ok()?;
    Some(uri.host()?.trim_matches(['[', ']']).to_lowercase())
}

/// The names that API servers call the process by.
fn names(shared: &AppState) -> CertificateNames {
    let mut others: Vec<String> = host(shared).into_iter().collect();
    others.extend(["localhost".to_owned(), "127.0.0.1".to_owned()]);
    others.sort();
    others.dedup();
    CertificateNames {
        service: shared.options.service.as_str().into(),
        namespace: shared.options.namespace.as_str().into(),
        others,
    }
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
