//! Which processes run on behalf of one: on Linux also those that left its group or its session.

#[cfg(not(target_os = "linux"))]
pub(super) use elsewhere::{Seen, started_by};
#[cfg(target_os = "linux")]
pub(super) use linux::{Seen, started_by};

/// Set in the environment of whatever is started, with a name that no other run has.
pub(super) const MARK: &str = "KILN_RUN";

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    /// No process is visible here.
    #[derive(Clone, Copy, Debug)]
    pub(in crate::local) enum Seen {}

    impl Seen {
        pub(in crate::local) fn kill(self) {
            match self {}
        }

        pub(in crate::local) fn is_there(self) -> bool {
            match self {}
        }
    }

    pub(in crate::local) fn started_by(_: u32, _: &str) -> Vec<Seen> {
        Vec::new()
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::BTreeSet;
    use std::io::Read;

    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    use super::MARK;

    /// The largest environment that is looked through.
    const LARGEST: u64 = 4 << 20;

    /// A process that was seen.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(in crate::local) struct Seen {
        pid: i32,
        /// When it was started: another process may get its number later.
        since: u64,
    }

    impl Seen {
        /// Whether it has not ended.
        pub(in crate::local) fn is_there(self) -> bool {
            stat(self.pid).is_some_and(|stat| stat.since == self.since && !stat.is_over)
        }

        /// Ends it, unless it has ended.
        pub(in crate::local) fn kill(self) {
            if self.is_there() {
                // It may end by itself in this moment.
                let _ = kill(Pid::from_raw(self.pid), Signal::SIGKILL);
            }
        }
    }

    /// What the kernel says about a process.
    struct Stat {
        parent: i32,
        is_over: bool,
        since: u64,
    }

    /// Everything that a process started and that these started, whether it is known by its parents or by the
    /// mark in its environment. The process itself is not among them.
    pub(in crate::local) fn started_by(pid: u32, mark: &str) -> Vec<Seen> {
        let Ok(root) = i32::try_from(pid) else { return Vec::new() };
        let all: Vec<(i32, Stat)> = std::fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter_map(|pid| Some((pid, stat(pid)?)))
            .filter(|(_, stat)| !stat.is_over)
            .collect();
        let mut found = BTreeSet::from([root]);
        let mut is_new = true;
        while is_new {
            is_new = false;
            for (pid, stat) in &all {
                let belongs = found.contains(&stat.parent);
                is_new |= belongs && found.insert(*pid);
            }
        }
        all.iter()
            .filter(|(pid, _)| *pid != root && (found.contains(pid) || is_marked(*pid, mark)))
            .map(|(pid, stat)| Seen { pid: *pid, since: stat.since })
            .collect()
    }

    fn stat(pid: i32) -> Option<Stat> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name stands in brackets and may hold anything, blanks and brackets too.
        let mut fields = text[text.rfind(')')? + 1..].split_whitespace();
        let is_over = matches!(fields.next()?, "Z" | "X" | "x");
        let parent = fields.next()?.parse().ok()?;
        let since = fields.nth(17)?.parse().ok()?;
        Some(Stat { parent, is_over, since })
    }

    fn is_marked(pid: i32, mark: &str) -> bool {
        let mut environment = Vec::new();
        let file = std::fs::File::open(format!("/proc/{pid}/environ"));
        if !file.is_ok_and(|file| file.take(LARGEST).read_to_end(&mut environment).is_ok()) {
            return false;
        }
        let wanted = format!("{MARK}={mark}");
        environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
    }

    #[cfg(test)]
    mod tests {
        use std::process::{Command, Stdio};

        use super::*;

        #[test]
        fn children_are_found_by_their_parent_and_strays_by_their_mark() {
            let mark = format!("test-{}", std::process::id());
            // The inner shell ends at once, so that what it started is an orphan.
            let mut child = Command::new("sh")
                .args(["-c", "sleep 100 & sh -c 'setsid sleep 100 & echo'; wait"])
                .env(MARK, &mark)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut line = [0; 1];
            child.stdout.take().unwrap().read_exact(&mut line).unwrap();
            let is_settled = || started_by(child.id(), &mark).len() == 2;
            let patience = std::time::Instant::now() + std::time::Duration::from_secs(20);
            while !is_settled() && std::time::Instant::now() < patience {
                std::thread::yield_now();
            }
            let found = started_by(child.id(), &mark);
            assert_eq!(found.len(), 2, "{found:?}");
            found.iter().for_each(|seen| seen.kill());
            child.wait().unwrap();
            while !started_by(child.id(), &mark).is_empty() && std::time::Instant::now() < patience
            {
                std::thread::yield_now();
            }
            assert_eq!(started_by(child.id(), &mark), []);
        }
    }
}
