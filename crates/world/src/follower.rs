//! Lists and watches: what a replica hears of objects, pulled whenever it looks.

use kiln_apiserver::{ApiRequest, ResponseOrWatch, Watch};
use kiln_cluster::{ApiError, Listing, Reason, WatchEvent};
use kiln_object::Kinds;
use kiln_replica::calls::{collection_path, list_all};
use kiln_replica::watch_news::{Subject, WatchNews, read as read_line};
use kiln_value::{KeyTable, json};

use crate::connection::{Connection, now_or_never, read, tell_fault};

/// How long to wait before a kind is listed again that could not be.
const AGAIN: u64 = 2_000;

/// A watch that is open.
#[derive(Debug)]
pub(crate) struct WatchStream {
    watch: Box<Watch>,
    /// The revision of the server when it was last pulled: nothing is new before another one.
    pulled: Option<u64>,
}

impl WatchStream {
    /// Begins to watch from a revision on.
    pub(crate) fn open(
        connection: &Connection,
        kinds: &Kinds,
        subject: &Subject,
        from: u64,
    ) -> Result<Self, ApiError> {
        if !connection.reaches() {
            return Err(ApiError::new(Reason::Unavailable, "the server cannot be reached"));
        }
        let from = from.to_string();
        let mut query =
            vec![("watch", "true"), ("allowWatchBookmarks", "true"), ("resourceVersion", &from)];
        if !subject.fields.is_empty() {
            query.push(("fieldSelector", subject.fields.as_str()));
        }
        if !subject.labels.is_empty() {
            query.push(("labelSelector", subject.labels.as_str()));
        }
        let path = collection_path(kinds, &subject.gvk, &subject.namespace, &query)?;
        let request =
            ApiRequest::new("GET", &path).with_header("Impersonate-User", &connection.user);
        let gone = || ApiError::new(Reason::Unavailable, "the world has ended");
        let server = connection.core.server().ok_or_else(gone)?;
        match server.handle(&request) {
            ResponseOrWatch::Watch(watch) => Ok(WatchStream { watch, pulled: None }),
            ResponseOrWatch::Response(response) => Err(read(&response).err().unwrap_or_else(gone)),
        }
    }

    /// What happened since it was last pulled.
    ///
    /// # Errors
    /// When the watch has ended: the kind has to be listed again.
    pub(crate) fn pull(&mut self, connection: &Connection) -> Result<Vec<WatchNews>, ApiError> {
        let Some(server) = connection.core.server().filter(|_| connection.reaches()) else {
            return Ok(Vec::new());
        };
        let revision = server.revision();
        if self.pulled == Some(revision) {
            return Ok(Vec::new());
        }
        let mut news = Vec::new();
        let mut keys = KeyTable::new();
        loop {
            let bytes = self.watch.next(&server);
            if bytes.is_empty() {
                break;
            }
            for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                let value = json::parse_bytes(line, &mut keys)
                    .map_err(|error| ApiError::new(Reason::Unavailable, error.to_string()))?;
                news.push(read_line(value)?);
            }
        }
        self.pulled = Some(revision);
        let rate = connection.core.rates().broken_watch;
        let has_events = news.iter().any(|one| matches!(one, WatchNews::Event(_)));
        if rate > 0 && has_events && connection.core.ambience.decide(|chance| chance.one_in(rate)) {
            tell_fault(&connection.core, format!("a watch of {} breaks", connection.user));
            return Err(ApiError::new(Reason::Gone, "too old resource version"));
        }
        Ok(news)
    }
}

/// What is told of a subject that is followed.
#[derive(Debug)]
pub(crate) enum FollowNews {
    /// All of its objects.
    All(Listing),
    One(WatchEvent),
    /// The server does not serve its kind.
    Unserved,
    /// It cannot be listed, and why.
    Unreadable(String),
}

#[derive(Debug)]
enum FollowState {
    /// It is to be listed at this time.
    Unlisted(u64),
    /// Its kind is not served.
    Unserved,
    Watching(WatchStream),
}

/// Lists and watches a subject for as long as it lives.
#[derive(Debug)]
pub(crate) struct Follower {
    pub(crate) subject: Subject,
    state: FollowState,
}

impl Follower {
    pub(crate) fn new(subject: Subject) -> Self {
        Follower { subject, state: FollowState::Unlisted(0) }
    }

    /// What is new of the subject.
    pub(crate) fn poll(&mut self, connection: &Connection, kinds: &Kinds) -> Vec<FollowNews> {
        let is_served = kinds.get(&self.subject.gvk).is_some();
        match &mut self.state {
            FollowState::Unserved if !is_served => Vec::new(),
            FollowState::Unlisted(at) if *at > connection.core.now() => Vec::new(),
            FollowState::Watching(stream) if is_served => match stream.pull(connection) {
                Ok(news) => news
                    .into_iter()
                    .filter_map(|news| match news {
                        WatchNews::Event(event) => Some(FollowNews::One(event)),
                        WatchNews::Upto(_) | WatchNews::Lost => None,
                    })
                    .collect(),
                Err(_) => self.list(connection, kinds),
            },
            _ => self.list(connection, kinds),
        }
    }

    fn list(&mut self, connection: &Connection, kinds: &Kinds) -> Vec<FollowNews> {
        let subject = &self.subject;
        let listed = match subject.labels.is_empty() {
            true => now_or_never(list_all(
                connection,
                kinds,
                &subject.gvk,
                &subject.namespace,
                &subject.fields,
            )),
            false => labelled(connection, kinds, subject),
        };
        let opened = listed.and_then(|listing| {
            let stream = WatchStream::open(connection, kinds, subject, listing.revision)?;
            Ok((listing, stream))
        });
        match opened {
            Ok((listing, stream)) => {
                self.state = FollowState::Watching(stream);
                vec![FollowNews::All(listing)]
            }
            Err(error) if error.reason == Reason::UnknownKind => {
                self.state = FollowState::Unserved;
                vec![FollowNews::Unserved]
            }
            Err(error) => {
                self.state = FollowState::Unlisted(connection.core.now() + AGAIN);
                vec![FollowNews::Unreadable(error.to_string())]
            }
        }
    }

    /// When to look again, if nothing is written.
    pub(crate) fn next_time(&self) -> Option<u64> {
        match self.state {
            FollowState::Unlisted(at) => Some(at),
            FollowState::Unserved | FollowState::Watching(_) => None,
        }
    }
}

/// All objects with labels, page by page.
fn labelled(
    connection: &Connection,
    kinds: &Kinds,
    subject: &Subject,
) -> Result<Listing, ApiError> {
    let selector = kiln_object::Selector::parse(&subject.labels)
        .map_err(|error| ApiError::new(Reason::Invalid, error.to_string()))?;
    let call = kiln_cluster::Call::List {
        kind: subject.gvk.clone(),
        namespace: None,
        selector,
        limit: None,
        resume: None,
    };
    Ok(connection.call(kinds, &call)?.listing().unwrap_or_default())
}
