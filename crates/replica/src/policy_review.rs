//! The answer to a policy that is to be stored: what it needs, the engine and its author must be permitted to do.

use http::Method;
use kiln_admission::access::ACCESS_REVIEWS;
use kiln_admission::policies::PolicyCheck;
use kiln_admission::{Response, Settings};
use kiln_cluster::{ApiError, Call, Reply};
use kiln_object::Kinds;
use kiln_value::Value;

use crate::api::Api;
use crate::calls::carry_out;

/// Asks for the permissions that a checked policy needs, and concludes.
pub async fn permitted<A: Api>(
    api: &A,
    kinds: &Kinds,
    checked: PolicyCheck,
    settings: &Settings,
) -> Response {
    match answers(api, kinds, &checked, settings).await {
        Ok(allowed) => checked.conclude(&allowed, settings),
        Err(error) => {
            let why = format!("cannot find out which permissions the engine has: {error}");
            Response::failed(why)
        }
    }
}

async fn answers<A: Api>(
    api: &A,
    kinds: &Kinds,
    checked: &PolicyCheck,
    settings: &Settings,
) -> Result<Vec<bool>, ApiError> {
    let mut allowed = Vec::new();
    for question in checked.questions() {
        let mut yes = is_allowed(api, &question.to_value(settings)).await?;
        if !yes {
            let role = match question.role() {
                Some(role) => {
                    // What cannot be read is not known to be held.
                    let read = carry_out(api, kinds, &Call::Get(role)).await;
                    read.ok().and_then(Reply::object)
                }
                None => None,
            };
            if let Some(instead) = question.instead(role.as_ref(), settings) {
                yes = true;
                for review in &instead {
                    yes = yes && is_allowed(api, review).await?;
                }
            }
        }
        allowed.push(yes);
    }
    Ok(allowed)
}

/// Whether a user may do something.
async fn is_allowed<A: Api>(api: &A, review: &Value) -> Result<bool, ApiError> {
    let answer = api.send(Method::POST, ACCESS_REVIEWS, Some(review), "").await?;
    Ok(answer.get_path(["status", "allowed"]).and_then(Value::as_bool).unwrap_or(false))
}
