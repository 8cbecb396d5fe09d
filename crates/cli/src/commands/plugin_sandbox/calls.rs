//! System calls that a plugin is refused, by seccomp: those that reach what is neither a file that it opens nor a process
//! that it starts. All others stay allowed, so that interpreters of any kind work.

use std::collections::BTreeMap;
use std::path::Path;

use nix::libc;
use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{Eq, MaskedEq, Ne};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};

/// Connected pairs keep to themselves, but for these, which can be led to any socket of the machine.
const WANDERING: [i32; 2] = [libc::SOCK_DGRAM, libc::SOCK_RAW];
/// The type of a socket is in these bits; flags are beside it.
const SOCKET_TYPE: u64 = 0xf;

/// Commands for devices and files: type into a terminal, paste into one, change attributes of a file.
const COMMANDS: [u64; 4] = [0x5412, 0x541c, 0x4008_6602, 0x401c_5820];

/// Bits of a mode that let others run a file as its owner or group.
const RUN_AS_OWNER: [u64; 2] = [0o4000, 0o2000];

/// A process that runs these reaches processes, keys, devices and mounts that are not the plugin's, or learns what happens to
/// files that it cannot open.
const OTHERS: &[libc::c_long] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_perf_event_open,
    libc::SYS_bpf,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    SYS_OPEN_TREE_ATTR,
    libc::SYS_setns,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_inotify_init1,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_inotify_init,
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semctl,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_msgget,
    libc::SYS_msgctl,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
];

/// What changes a file without opening it for that.
const CHANGES: &[libc::c_long] = &[
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    SYS_FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    SYS_SETXATTRAT,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    SYS_REMOVEXATTRAT,
    SYS_FILE_SETATTR,
    libc::SYS_truncate,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
];

// These are newer than the tables of constants; calls of that age have one number everywhere.
const SYS_FCHMODAT2: libc::c_long = 452;
const SYS_SETXATTRAT: libc::c_long = 463;
const SYS_REMOVEXATTRAT: libc::c_long = 466;
const SYS_OPEN_TREE_ATTR: libc::c_long = 467;
const SYS_FILE_SETATTR: libc::c_long = 469;

/// Programs do without these where they are missing. A filter cannot look into what they are given.
const MISSING: &[libc::c_long] = &[
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_openat2,
];

/// Conditions on the arguments of a call; it is refused if one of the lists holds as a whole. No list: always.
type CallRules = BTreeMap<i64, Vec<SeccompRule>>;

pub(super) fn is_supported() -> bool {
    target().is_ok() && Path::new("/proc/sys/kernel/seccomp/actions_avail").exists()
}

fn target() -> Result<TargetArch, BackendError> {
    std::env::consts::ARCH.try_into()
}

/// Refuses them to this process and whatever it becomes and starts.
pub(super) fn refuse(network: bool, rest_is_read_only: bool) -> Result<(), String> {
    let failed = |why: String| format!("cannot give up system calls: {why}");
    for program in
        programs(network, rest_is_read_only).map_err(|error| failed(error.to_string()))?
    {
        seccompiler::apply_filter(&program).map_err(|error| failed(error.to_string()))?;
    }
    Ok(())
}

fn programs(network: bool, rest_is_read_only: bool) -> Result<Vec<BpfProgram>, BackendError> {
    let mut not_permitted: CallRules = OTHERS.iter().map(|call| (*call, Vec::new())).collect();
    not_permitted.extend(machine()?);
    not_permitted.extend(if rest_is_read_only { owners_only()? } else { changes()? });
    let missing = MISSING.iter().map(|call| (*call, Vec::new())).collect();
    let mut programs = vec![];
    programs.extend(other_numbers());
    for (rules, error) in
        [(missing, libc::ENOSYS), (not_permitted, libc::EPERM), (sockets(network)?, libc::EACCES)]
    {
        let answer = SeccompAction::Errno(error.unsigned_abs());
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, answer, target()?)?;
        programs.push(filter.try_into()?);
    }
    Ok(programs)
}

/// A list of conditions: the place of the argument, how it is compared, with what.
fn when<const N: usize>(
    conditions: [(u8, seccompiler::SeccompCmpOp, u64); N],
) -> Result<SeccompRule, BackendError> {
    // The kernel looks at the lower half of such arguments only; the upper half can be anything.
    let conditions =
        conditions.map(|(at, how, value)| SeccompCondition::new(at, Dword, how, value));
    SeccompRule::new(conditions.into_iter().collect::<Result<_, _>>()?)
}

/// What depends on the arguments: commands for terminals, limits of other processes.
fn machine() -> Result<CallRules, BackendError> {
    let commands = COMMANDS.iter().map(|command| when([(1, Eq, *command)]));
    let limits = SeccompRule::new(vec![
        SeccompCondition::new(0, Dword, Ne, 0)?,
        SeccompCondition::new(2, Qword, Ne, 0)?,
    ])?;
    Ok(CallRules::from([
        (libc::SYS_ioctl, commands.collect::<Result<_, _>>()?),
        (libc::SYS_prlimit64, vec![limits]),
    ]))
}

fn sockets(network: bool) -> Result<CallRules, BackendError> {
    let family = |family: i32| u64::from(family.unsigned_abs());
    let mut sockets = Vec::new();
    if network {
        let [four, six, links] = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK].map(family);
        sockets.push(when([(0, Ne, four), (0, Ne, six), (0, Ne, links)])?);
        // Which addresses the machine has; with any other protocol it is another service of the kernel.
        sockets.push(when([(0, Eq, links), (2, Ne, 0)])?);
    }
    let pairs = WANDERING.iter().map(|kind| when([(1, MaskedEq(SOCKET_TYPE), family(*kind))]));
    Ok(CallRules::from([
        (libc::SYS_socket, sockets),
        (libc::SYS_socketpair, pairs.collect::<Result<_, _>>()?),
    ]))
}

/// Refuses all changes of modes, owners, times and attributes. `touch` alone stays: now, for a file that is open.
fn changes() -> Result<CallRules, BackendError> {
    let mut rules: CallRules = CHANGES.iter().map(|call| (*call, Vec::new())).collect();
    let unless_nothing_is_named = [1, 2]
        .map(|at| SeccompRule::new(vec![SeccompCondition::new(at, Qword, Ne, 0)?]))
        .into_iter()
        .collect::<Result<_, _>>()?;
    rules.insert(libc::SYS_utimensat, unless_nothing_is_named);
    rules.extend(made_with_modes()?);
    Ok(rules)
}

/// Refuses the modes alone that would let others act as the user.
fn owners_only() -> Result<CallRules, BackendError> {
    let mut rules = made_with_modes()?;
    for (call, at) in [
        (libc::SYS_fchmod, 1),
        (libc::SYS_fchmodat, 2),
        (SYS_FCHMODAT2, 2),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_chmod, 1),
    ] {
        let rule = RUN_AS_OWNER.iter().map(|bit| when([(at, MaskedEq(*bit), *bit)]));
        rules.insert(call, rule.collect::<Result<_, _>>()?);
    }
    Ok(rules)
}

/// The same for what makes files.
fn made_with_modes() -> Result<CallRules, BackendError> {
    let mut rules = CallRules::new();
    let create = u64::from(libc::O_CREAT.unsigned_abs());
    // The bit of O_TMPFILE itself; it comes with that of O_DIRECTORY.
    let unnamed = u64::from((libc::O_TMPFILE & !libc::O_DIRECTORY).unsigned_abs());
    for (call, flags, mode) in [
        (libc::SYS_openat, Some(2), 3),
        (libc::SYS_mknodat, None, 2),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_open, Some(1), 2),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_creat, None, 1),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_mknod, None, 1),
    ] {
        let rules: &mut Vec<SeccompRule> = rules.entry(call).or_default();
        for bit in RUN_AS_OWNER {
            match flags {
                None => rules.push(when([(mode, MaskedEq(bit), bit)])?),
                // Without them the mode is whatever was left there.
                Some(at) => {
                    for flag in [create, unnamed] {
                        rules.push(when([(at, MaskedEq(flag), flag), (mode, MaskedEq(bit), bit)])?);
                    }
                }
            }
        }
    }
    Ok(rules)
}

/// On this architecture calls have a second set of numbers, which other filters do not know.
#[cfg(target_arch = "x86_64")]
fn other_numbers() -> Option<BpfProgram> {
    use seccompiler::sock_filter;
    const LOAD_NUMBER: u16 = 0x20;
    const JUMP_IF_AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    const OTHER_NUMBERS: u32 = 0x4000_0000;
    let answer = |action: SeccompAction| u32::from(action);
    let missing = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    Some(vec![
        sock_filter { code: LOAD_NUMBER, jt: 0, jf: 0, k: 0 },
        sock_filter { code: JUMP_IF_AT_LEAST, jt: 0, jf: 1, k: OTHER_NUMBERS },
        sock_filter { code: RETURN, jt: 0, jf: 0, k: answer(missing) },
        sock_filter { code: RETURN, jt: 0, jf: 0, k: answer(SeccompAction::Allow) },
    ])
}

#[cfg(not(target_arch = "x86_64"))]
fn other_numbers() -> Option<BpfProgram> {
    None
}
