//! What the sandbox does not do.

/// For `kiln up --limits`.
pub(super) const TEXT: &str = "\
The sandbox is an API server for development and tests. For production there is Kubernetes.

it does not                             instead
run pods, have nodes                    pods are stored and stay Pending; logs are empty, exec, attach, port-forward and proxy say why
run Services, Ingresses, DNS            they are stored and get addresses that lead nowhere
schedule, scale, bind volumes           Deployments, ReplicaSets and Jobs make pods; CronJobs and other controllers are not there
make pods without end                   when there are 5000, workloads get no more, and a Warning Event tells of it
reach webhooks behind Services          storing one warns of it; those with a url, or behind an ExternalName, are called
call webhooks again                     each is asked once, for the version that was written: no reinvocation, no matchPolicy Equivalent
offer authorizer to expressions         conditions and admission policies that mention it fail
convert by webhooks                     versions of a custom kind differ in nothing but their name; storing such a kind warns of it
sign certificates                       CertificateSigningRequests are stored, not signed
aggregate API servers                   APIServices are stored with a warning, not called
check everything Kubernetes checks      names, labels, required and fixed fields of common kinds, and all of custom schemas are checked
take client certificates                people come with a token, ServiceAccounts with theirs
let clients in without a token          but for /healthz, /livez, /readyz and /version, however permissions are decided
answer in protobuf                      bodies in protobuf are read, answers are JSON or YAML
describe fields in kubectl explain      names and types are there
hold the engine to roles by itself      only with --authorization rbac: then its accounts have what `kiln install --grant standard` gives
write audit logs, queue requests        audit annotations are dropped, FlowSchemas are stored
";
