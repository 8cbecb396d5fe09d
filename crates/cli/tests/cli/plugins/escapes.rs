//! Ways out of the sandbox that hostile plugins would try. What a kernel does not hold, a build tells; such tests are
//! skipped then.

use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use super::{CONFIG_MAP, Case, TEAM, holds, is_there, running};

/// Whether this system holds that; a build says when it does not.
fn is_held(case: &Case, what: &str) -> bool {
    let said = case.build(&["--enable-exec"]).stderr;
    let is_held =
        !said.lines().any(|line| line.contains("cannot keep plugins") && line.contains(what));
    if !is_held {
        kiln_testkit::skip(
            &format!("the kernel does not keep plugins from {what}"),
            "run the tests on Linux 6.12 or newer, with Landlock and seccomp enabled",
        );
    }
    is_held
}

fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok();
    if !found {
        kiln_testkit::skip(&format!("there is no {program}"), &format!("install {program}"));
    }
    found
}

/// A group plugin, which the user installed.
fn generator(body: &str) -> Case {
    Case::of_team("generators", &format!("#!/bin/sh\n[ $1 = generate ] || exit 127\n{body}\n"))
}

/// The same in Python, with a function `attempt` that writes down how something went.
fn in_python(body: &str) -> Case {
    let script = format!(
        "#!/usr/bin/env python3\nimport os, sys\n\
         if sys.argv[1] != 'generate': sys.exit(127)\n\
         said = open('said', 'w')\n\
         def attempt(name, what):\n    \
             try:\n        what()\n        said.write(name + ': done\\n')\n    \
             except OSError as e:\n        said.write(name + ': ' + type(e).__name__ + '\\n')\n\
         {body}"
    );
    Case::of_team("generators", &script)
}

/// A function, which the repository brings.
fn function(envs: &str, script: &str) -> Case {
    let config = format!(
        "apiVersion: g.example.com/v1\nkind: F\nmetadata:\n  name: f\n  annotations:\n    config.kubernetes.io/function: |\n      exec: {{path: ./fn.sh, envs: [{envs}]}}\n"
    );
    Case::new(
        "resources: [a.yaml]\ntransformers: [f.yaml]\n",
        &[("app/a.yaml", CONFIG_MAP), ("app/f.yaml", &config), ("secret/token", "hush")],
    )
    .executable("app/fn.sh", script)
}

fn link(case: &Case, name: &str, target: &str) {
    let path = case.0.path().join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    symlink(target, path).unwrap();
}

#[test]
fn the_first_line_of_a_function_opens_nothing() {
    let reads = "for f in ../secret/token ../tools/lib/token; do cat $f; done >&2\nexit 6\n";
    if !is_held(&function("", "#!/bin/sh\ncat\n"), "files") {
        return;
    }
    let root = "ROOT";
    for line in [
        "./x/bin/sh".to_owned(),
        format!("{root}/app/x/bin/sh"),
        format!("{root}/app/../app/x/bin/sh"),
        "/usr/bin/env -S ./x/bin/sh".to_owned(),
        format!("{root}/tools/bin/sh"),
        format!("/usr/bin/env -S {root}/tools/bin/sh"),
        // Not what is run, though it looks like it.
        format!("/usr/bin/env -S -u {root}/tools/bin/sh sh"),
        format!("/usr/bin/env -S -u {root}/secret/token sh"),
    ] {
        for places in ["/", "../../secret", "../../tools"] {
            let case = function("", "");
            let line = line.replace(root, &case.0.path().canonicalize().unwrap().to_string_lossy());
            let case = case.executable("app/fn.sh", &format!("#!{line}\n{reads}"));
            case.0.write("tools/lib/token", "hush");
            link(&case, "tools/bin/sh", "/bin/sh");
            link(&case, "app/x/bin/sh", "/bin/sh");
            for name in ["lib", "lib64", "libexec", "pyvenv.cfg"] {
                link(&case, &format!("app/x/{name}"), places);
            }
            let said = case.fails(&["--enable-exec"]);
            assert!(!said.contains("hush"), "{line}: {said}");
            assert!(said.contains("denied"), "{line}: {said}");
        }
    }
}

#[test]
fn interpreters_of_functions_are_found_by_the_path_of_the_user() {
    let case = function("", "#!/usr/bin/env our-shell\n. ../lib/ours\nsed \"s/k: v/k: $OURS/\"\n");
    link(&case, "bin/our-shell", "/bin/sh");
    case.0.write("lib/ours", "OURS=found\n");
    holds(&case.builds(&["--enable-exec"]), &["k: found\n"]);
}

#[test]
fn variables_of_a_function_mean_nothing_to_the_sandbox() {
    // The linker would write down what it does, before anything is confined.
    let case = function("", "#!/bin/sh\ncat\n");
    let traces = case.0.path().join("traces");
    std::fs::create_dir(&traces).unwrap();
    let envs = format!("LD_DEBUG=files, 'LD_DEBUG_OUTPUT={}/trace'", traces.display());
    let config = case.0.read("app/f.yaml").replace("envs: []", &format!("envs: [{envs}]"));
    case.0.write("app/f.yaml", config);
    if is_held(&case, "files") {
        assert_eq!(std::fs::read_dir(&traces).unwrap().count(), 0);
    }
}

#[test]
fn functions_see_the_variables_on_a_list_and_those_that_they_are_given() {
    let case = function("WORD=love", "#!/bin/sh\nenv >&2\ncat\n");
    let variables = case.variables();
    let mut variables: Vec<_> = variables.iter().map(|(name, value)| (*name, &**value)).collect();
    variables.extend([
        ("CLOUD_TOKEN", "hush"),
        ("LC_ALL", "C"),
        ("TZ", "Europe/Berlin"),
        ("https_proxy", "http://user:hush@proxy.example"),
    ]);
    let run = |flags: &[&str]| {
        let words = [&["build", "app", "--enable-alpha-plugins", "--enable-exec"], flags].concat();
        let run = case.0.kiln_with_variables(&words, &variables);
        assert_eq!(run.code, 0, "{}", run.stderr);
        run.stderr
    };
    let said = run(&[]);
    holds(&said, &["WORD=love", "PATH=", "HOME=", "LC_ALL=C", "TZ=Europe/Berlin", "TMPDIR="]);
    assert!(!said.contains("hush"), "{said}");
    holds(&run(&["--plugin-env", "CLOUD_TOKEN"]), &["CLOUD_TOKEN=hush"]);
    holds(&run(&["--network"]), &["https_proxy=http://user:hush@"]);
    holds(&run(&["--no-plugin-sandbox"]), &["CLOUD_TOKEN=hush", "WORD=love"]);
}

#[test]
fn a_plugin_has_no_terminal() {
    if !has("script") {
        return;
    }
    let case = generator(
        "(: > /dev/tty) 2> /dev/null && echo reached > said || echo kept > said\n\
         read -r stat < /proc/self/stat\nset -- ${stat##*)}\necho session $4 terminal $5 >> said",
    );
    let kiln = env!("CARGO_BIN_EXE_kiln");
    let status = Command::new("script")
        .args(["-qec", &format!("{kiln} build app --enable-alpha-plugins"), "/dev/null"])
        .current_dir(case.0.path())
        .envs(case.variables())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    let said = case.0.read("app/said");
    assert!(said.starts_with("kept\n") && said.ends_with(" terminal 0\n"), "{said}");
}

/// Goes on in a new session and a new process, again and again: it cannot be found in time.
const HOPPER: &str = "import time\n\
    def hop():\n    \
        if os.fork(): os._exit(0)\n    \
        os.setsid()\n    \
        os.environ.clear()\n\
    if os.fork() == 0:\n    \
        for stream in (0, 1, 2): os.close(stream)\n    \
        end = time.time() + 60\n    \
        while time.time() < end: hop()\n    \
        os._exit(0)\n";

#[test]
fn nothing_that_a_plugin_started_outlives_it() {
    if !has("python3") || !Case::has_processes() {
        return;
    }
    // Whether it ends by itself or is stopped.
    let case = in_python(HOPPER);
    case.builds(&[]);
    assert_eq!(running(&case), [""; 0]);
    let case = in_python(&format!("{HOPPER}time.sleep(1000)\n"));
    holds(&case.fails(&["--plugin-timeout", "2s"]), &["did not end"]);
    assert_eq!(running(&case), [""; 0]);
}

#[test]
fn what_a_plugin_started_may_write_until_it_ends() {
    // As process substitutions of shells do, which are not waited for.
    let case = generator(
        "(sleep 0.3; printf 'apiVersion: v1\\nkind: ConfigMap\\nmetadata: {name: late}\\n') &",
    );
    holds(&case.builds(&[]), &["name: late"]);
}

#[test]
fn a_plugin_finds_itself_under_its_own_number() {
    let case = generator(
        "sleep 1000 > /dev/null 2>&1 & kill -0 $! && echo started > said\nread -r own rest < /proc/self/stat\necho $own $$ >> said",
    );
    if Case::has_processes() {
        case.builds(&[]);
        let said = case.0.read("app/said");
        holds(&said, &["started\n"]);
        // Where `/proc` cannot be made anew it shows the numbers outside.
        assert!(said.ends_with(" 2\n"), "{said}");
        assert_eq!(running(&case), [""; 0]);
    }
}

#[test]
fn a_plugin_cannot_swap_files_while_they_are_read() {
    if !has("python3") {
        return;
    }
    let has_processes = Case::has_processes();
    // A child in another session puts a link, and then a pipe, in the place of a file that the build reads afterwards.
    for other in ["os.symlink('../../secret/token', 'other')", "os.mkfifo('other')"] {
        let case = in_python(&format!(
            "import ctypes, time\nlibc = ctypes.CDLL(None)\nopen('data.txt', 'w').write('plain')\n{other}\n\
             if os.fork() == 0:\n    \
                 os.setsid()\n    \
                 for stream in (0, 1, 2): os.close(stream)\n    \
                 end = time.time() + 20\n    \
                 while time.time() < end: libc.renameat2(-100, b'data.txt', -100, b'other', 2)\n    \
                 os._exit(0)\n"
        ));
        case.0.write("secret/token", "hush");
        case.0.write("app/sub/kustomization.yaml", "generators: [app.yaml]\n");
        case.0.write("app/sub/app.yaml", super::APP);
        case.0.write(
            "app/kustomization.yaml",
            "resources: [sub]\nconfigMapGenerator: [{name: c, files: [sub/data.txt]}]\n",
        );
        for _ in 0..5 {
            let begin = std::time::Instant::now();
            let run = case.build(&[]);
            assert!(begin.elapsed() < Duration::from_secs(60), "{other}");
            assert!(!run.stdout.contains("hush"), "{}", run.stdout);
            // No process is left that could.
            if has_processes {
                assert_eq!(running(&case), [""; 0], "{other}");
            }
            for name in ["data.txt", "other"] {
                let _ = std::fs::remove_file(case.0.path().join("app/sub").join(name));
            }
        }
    }
}

#[test]
fn a_plugin_reaches_no_socket() {
    if !has("python3") {
        return;
    }
    let case = in_python(
        "import asyncio, socket\n\
         root, port, name = open('where').read().split()\n\
         def stream(to): s = socket.socket(socket.AF_UNIX); s.connect(to)\n\
         def pair(kind):\n    a, b = socket.socketpair(socket.AF_UNIX, kind); a.sendto(b'x', root + '/datagrams')\n\
         attempt('path', lambda: stream(root + '/socket'))\n\
         attempt('abstract', lambda: stream('\\0' + name))\n\
         attempt('datagrams', lambda: pair(socket.SOCK_DGRAM))\n\
         attempt('raw', lambda: pair(socket.SOCK_RAW))\n\
         attempt('packets', lambda: pair(socket.SOCK_SEQPACKET))\n\
         attempt('network', lambda: socket.create_connection(('127.0.0.1', int(port)), 5))\n\
         attempt('links', lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15))\n\
         async def nothing(): await asyncio.sleep(0)\n\
         attempt('loop', lambda: asyncio.run(nothing()))\n",
    );
    let root = case.0.path().to_str().unwrap();
    let network = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = network.local_addr().unwrap().port();
    let _path = std::os::unix::net::UnixListener::bind(format!("{root}/socket")).unwrap();
    let datagrams = std::os::unix::net::UnixDatagram::bind(format!("{root}/datagrams")).unwrap();
    let name = format!("kiln-test-{port}");
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    let _abstract = std::os::unix::net::UnixListener::bind_addr(&address).unwrap();
    case.0.write("app/where", format!("{root}\n{port}\n{name}\n"));
    if !is_held(&case, "sockets") {
        return;
    }
    for (flags, network) in [(&[][..], "PermissionError"), (&["--network"], "done")] {
        case.builds(flags);
        let wanted = format!(
            "path: PermissionError\nabstract: PermissionError\ndatagrams: PermissionError\nraw: PermissionError\n\
             packets: done\nnetwork: {network}\nlinks: PermissionError\nloop: done\n"
        );
        assert_eq!(case.0.read("app/said"), wanted, "{flags:?}");
    }
    datagrams.set_nonblocking(true).unwrap();
    assert!(datagrams.recv(&mut [0; 8]).is_err());
    case.builds(&["--no-plugin-sandbox"]);
    holds(&case.0.read("app/said"), &["path: done", "abstract: done", "datagrams: done"]);
}

#[test]
fn a_plugin_that_needs_the_network_is_told_how() {
    let case = generator("echo 'curl: (6) Could not resolve host: charts.example' >&2; exit 6");
    holds(&case.fails(&[]), &["--network lets it use the network"]);
}

#[test]
fn a_plugin_sends_no_signals_out() {
    let mut other = Command::new("sleep").arg("1000").spawn().unwrap();
    let pid = other.id().to_string();
    let case = generator(&format!(
        "sleep 1000 & own=$!\nkill -9 {pid} 2>/dev/null && echo sent > said || echo kept > said\nkill $own && echo own >> said"
    ));
    if is_held(&case, "signals") {
        case.builds(&[]);
        assert_eq!(case.0.read("app/said"), "kept\nown\n");
        assert!(is_there(&pid));
    }
    other.kill().unwrap();
    other.wait().unwrap();
}

/// Tries to change files in ways that open none for writing, by path and by descriptor.
const CHANGES: &str = "\
root = open('where').read().strip()
for name in ('secret/token', 'secret', 'config/kustomize/plugins/team.example.com'):
    path = root + '/' + name
    attempt('mode', lambda: os.chmod(path, 0o777))
    attempt('times', lambda: os.utime(path, (1, 1)))
    attempt('now', lambda: os.utime(path))
    attempt('owner', lambda: os.chown(path, os.getuid(), os.getgid()))
    attempt('attribute', lambda: os.setxattr(path, 'user.kiln', b'x'))
    attempt('size', lambda: os.truncate(path, 0))
    def opened():
        f = os.open(path, os.O_RDONLY)
        attempt('mode', lambda: os.chmod(f, 0o777))
        attempt('times', lambda: os.utime(f, (1, 1)))
        attempt('attribute', lambda: os.setxattr(f, 'user.kiln', b'x'))
    attempt('open', opened)
said.flush()
";

/// A file outside, and what is known of it.
fn changes(case: &Case, through: &[&str], more: &[&str]) -> String {
    let root = case.0.path();
    case.0.write("secret/token", "hush");
    case.0.write("app/where", root.to_str().unwrap());
    let old = SystemTime::now() - Duration::from_secs(100_000);
    let places = ["secret/token", "secret", TEAM].map(|name| root.join(name));
    for place in &places {
        std::fs::File::open(place).unwrap().set_modified(old).unwrap();
    }
    let about = || {
        places.clone().map(|place| {
            let about = std::fs::metadata(place).unwrap();
            (about.permissions().mode(), about.mtime(), about.len())
        })
    };
    let before = about();
    let words =
        [through, &[env!("CARGO_BIN_EXE_kiln"), "build", "app", "--enable-alpha-plugins"], more]
            .concat();
    let output = Command::new(words[0])
        .args(&words[1..])
        .current_dir(root)
        .envs(case.variables())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(about(), before, "{through:?}: {}", case.0.read("app/said"));
    case.0.read("app/said")
}

#[test]
fn a_plugin_changes_no_modes_times_or_attributes_outside() {
    if !has("python3") {
        return;
    }
    let case = in_python(CHANGES);
    if !is_held(&case, "the modes") || !is_held(&case, "files") {
        return;
    }
    let said = changes(&case, &[], &[]);
    // That a file can be read is not a right to change it.
    let said = said + &changes(&case, &[], &["--plugin-read", "secret"]);
    let done: Vec<_> = said.lines().filter(|line| line.ends_with("done")).collect();
    assert!(done.iter().all(|line| *line == "open: done"), "{said}");
    assert!(said.contains("mode: "), "{said}");
}

#[test]
fn a_plugin_changes_modes_and_times_in_its_folders_unless_the_system_is_in_the_way() {
    let case = generator(
        "echo x > a && chmod 700 a && touch -d @1000000 a && cp -p a b && mkdir -m 750 d || exit 6\n\
         cp -p a $TMPDIR/a && chmod u+s a 2> /dev/null && exit 7\n\
         install -m 4755 a c 2> /dev/null && exit 8\ntrue",
    );
    let run = case.build(&[]);
    if run.stderr.contains("not permitted") && run.stderr.contains("exit status 6") {
        kiln_testkit::skip(
            "this user can make no view of the file system of their own",
            "run the tests as a superuser, or where user namespaces are allowed",
        );
        return;
    }
    assert_eq!(run.code, 0, "{}", run.stderr);
    let about = std::fs::metadata(case.0.path().join("app/b")).unwrap();
    assert_eq!((about.permissions().mode() & 0o7777, about.mtime()), (0o700, 1_000_000));
}

#[test]
fn where_the_system_is_in_the_way_modes_and_times_stay_as_they_are() {
    // Who has no name in a user namespace can make no other.
    let nameless = ["unshare", "--user"];
    let can = Command::new(nameless[0]).args([nameless[1], "true"]).status();
    if !has("python3") || !can.is_ok_and(|status| status.success()) {
        kiln_testkit::skip("there are no user namespaces", "run the tests where they are allowed");
        return;
    }
    let case = in_python(&format!(
        "{CHANGES}open('made', 'w').close()\nattempt('inside', lambda: os.chmod('made', 0o700))\n\
         import subprocess\nsubprocess.run(['touch', 'touched', 'made'], check=True)\n"
    ));
    if is_held(&case, "the modes") && is_held(&case, "files") {
        let said = changes(&case, &nameless, &[]);
        let done: Vec<_> = said.lines().filter(|line| line.ends_with("done")).collect();
        assert!(done.iter().all(|line| *line == "open: done"), "{said}");
        holds(&said, &["inside: PermissionError"]);
    }
}

#[test]
fn what_whoever_started_the_build_left_open_is_closed() {
    let case = generator("(cat <&9) > said 2> /dev/null\ntrue");
    case.0.write("secret/token", "hush");
    if !is_held(&case, "files") {
        return;
    }
    let kiln = env!("CARGO_BIN_EXE_kiln");
    let mut child = Command::new("sh")
        .args([
            "-c",
            &format!("exec 9< secret/token; exec {kiln} build app --enable-alpha-plugins"),
        ])
        .current_dir(case.0.path())
        .envs(case.variables())
        .stdout(Stdio::null())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(case.0.read("app/said"), "");
}

#[test]
fn a_superuser_makes_no_devices_and_has_no_capabilities_over_the_machine() {
    let case = generator(
        "mknod disk b 8 0 2> /dev/null && exit 7\nmknod null c 1 3 2> /dev/null && exit 8\n\
         while read -r name value; do [ $name = CapEff: ] && echo $value > said; done < /proc/self/status\ntrue",
    );
    if is_held(&case, "files") {
        case.builds(&[]);
        let said = case.0.read("app/said");
        let held = u64::from_str_radix(said.trim(), 16).unwrap();
        // Owners and modes of files: CHOWN, DAC_OVERRIDE, FOWNER, FSETID.
        assert_eq!(held & !0b1_1011, 0, "{said}");
    }
}

#[test]
fn a_plugin_neither_types_nor_mounts_nor_watches() {
    if !has("python3") {
        return;
    }
    let case = in_python(
        "import ctypes, platform\nlibc = ctypes.CDLL(None, use_errno=True)\n\
         pc = platform.machine() == 'x86_64'\n\
         def call(*words):\n    \
             if libc.syscall(*words) < 0: raise OSError(ctypes.get_errno(), 'refused')\n\
         # Typing into a terminal; the kernel looks at the lower half of the number only.\n\
         for command in (0x5412, 0x5412 | 1 << 32):\n    \
             attempt('type', lambda: call(16 if pc else 29, 0, ctypes.c_ulong(command), b'x'))\n\
         attempt('mount', lambda: call(165 if pc else 40, b'none', b'/tmp', b'tmpfs', 0, None))\n\
         attempt('watch', lambda: call(294 if pc else 26, 0))\n\
         attempt('keys', lambda: call(250 if pc else 219, 0, -3, 0, 0, 0))\n\
         attempt('ring', lambda: call(425, 1, None))\n",
    );
    if is_held(&case, "sockets") {
        case.builds(&[]);
        assert_eq!(
            case.0.read("app/said"),
            "type: PermissionError\ntype: PermissionError\nmount: PermissionError\nwatch: PermissionError\nkeys: PermissionError\nring: OSError\n"
        );
    }
}

#[test]
fn the_way_into_the_sandbox_follows_no_link() {
    let case = generator("true");
    case.0.write("secret/token", "hush");
    link(&case, "app/way", "../secret");
    if !is_held(&case, "files") {
        return;
    }
    let root = case.0.path().canonicalize().unwrap();
    let reads = |way: &str| {
        let mut kiln = Command::new(env!("CARGO_BIN_EXE_kiln"));
        kiln.arg("plugin-sandbox");
        for system in ["/usr", "/lib", "/lib64"] {
            kiln.arg("--read").arg(std::fs::canonicalize(system).unwrap_or_default());
        }
        kiln.arg("--write").arg(root.join(way)).args(["--", "/bin/cat"]);
        let output = kiln.arg(root.join("secret/token")).output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    assert_eq!(reads("app/way"), (false, String::new()));
    assert_eq!(reads("secret"), (true, "hush".to_owned()));
}
