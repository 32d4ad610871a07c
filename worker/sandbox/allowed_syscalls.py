"""The system calls that a job may make: Docker's allowlist without the calls that compiling does not need.

Source of the list: ``profiles/seccomp/default.json`` of moby/moby.
"""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ALLOWED = _words(
    """
    access alarm arch_prctl brk cachestat capget chdir clock_getres clock_gettime clock_nanosleep close
    close_range copy_file_range creat dup dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_pwait
    epoll_pwait2 epoll_wait eventfd eventfd2 execve execveat exit exit_group faccessat faccessat2
    fadvise64 fchdir fdatasync fgetxattr flistxattr flock fork fstat fstatfs fsync ftruncate
    futex futex_requeue futex_wait futex_waitv futex_wake get_mempolicy get_robust_list getcpu getcwd
    getdents getdents64 getegid geteuid getgid getgroups getitimer getpgid getpgrp getpid getppid
    getpriority getrandom getresgid getresuid getrlimit getrusage getsid gettid gettimeofday getuid
    getxattr kill lgetxattr link linkat listxattr llistxattr lseek lstat madvise membarrier mincore
    mkdir mkdirat mlock mlock2 mlockall mprotect mremap msync munlock munlockall munmap nanosleep
    newfstatat open openat openat2 pause pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free
    pkey_mprotect poll ppoll pread64 preadv preadv2 pselect6 pwrite64 pwritev pwritev2 read
    readahead readlink readlinkat readv rename renameat renameat2 restart_syscall rmdir rseq
    rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait
    rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr
    sched_getparam sched_getscheduler sched_rr_get_interval sched_yield select
    sendfile set_robust_list set_tid_address setitimer setrlimit sigaltstack signalfd signalfd4 splice
    stat statfs statx sync_file_range sysinfo tee tgkill time timer_create timer_delete timer_getoverrun
    timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime times tkill umask uname
    unlink unlinkat vfork wait4 waitid waitpid write writev
    """
)

ALLOWED_TO_OWN_USER = _words(
    """
    chmod fchmod fchmodat fchmodat2 futimesat utime utimensat utimes
    """
)
"""Landlock does not cover these: a job that runs as the supervisor's user could change its files."""

DENIED = _words(
    """
    accept accept4 acct add_key adjtimex bind bpf capset chown chroot clock_adjtime clock_settime
    connect delete_module fanotify_init fanotify_mark fchown fchownat finit_module fremovexattr fsconfig
    fsetxattr fsmount fsopen fspick getpeername getsockname getsockopt init_module inotify_add_watch
    inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents io_setup
    io_submit ioperm iopl ioprio_get ioprio_set kcmp kexec_file_load kexec_load keyctl landlock_add_rule
    landlock_create_ruleset landlock_restrict_self lchown listen lookup_dcookie lremovexattr lsetxattr
    mbind memfd_create memfd_secret migrate_pages mknod mknodat modify_ldt mount mount_setattr
    move_mount move_pages mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink msgctl
    msgget msgrcv msgsnd name_to_handle_at nfsservctl open_by_handle_at open_tree perf_event_open
    personality pidfd_getfd pivot_root process_madvise process_mrelease process_vm_readv
    process_vm_writev ptrace quotactl quotactl_fd reboot recvfrom recvmmsg recvmsg remap_file_pages
    removexattr request_key sched_setattr sched_setparam sched_setscheduler seccomp semctl semget semop
    semtimedop sendmmsg sendmsg sendto set_mempolicy set_mempolicy_home_node setdomainname setfsgid
    setfsuid setgid setgroups sethostname setns setpgid setpriority setregid setresgid setresuid
    setreuid setsid setsockopt settimeofday setuid setxattr shmat shmctl shmdt shmget shutdown socket
    socketpair swapoff swapon symlink symlinkat sync syncfs syslog truncate umount umount2 unshare
    userfaultfd vhangup vmsplice
    """
)
"""These fail with EPERM. Calls in none of the lists fail with ENOSYS, so that callers fall back."""

FALL_BACK = ("clone3", "io_uring_enter", "io_uring_register", "io_uring_setup")
"""These fail with ENOSYS: libraries then use the older call, whose arguments a filter can read."""

NAMESPACE_FLAGS = 0x7E020000
CLONE_FILES = 0x00000400
CLONE_THREAD = 0x00010000
"""A thread shares its process's descriptors, so that any of its threads shows them all to the supervisor."""

CLONE_PARENT = 0x00008000
"""This flag would make the new process the zygote's child instead of the job's."""

MAP_SHARED = 0x01
MAP_ANONYMOUS = 0x20
"""Shared anonymous memory stays when a process unmaps it, and ``/proc`` no longer shows it."""

PRCTL_OPTIONS = (
    *(1, 2),  # the signal at the parent's death
    *(15, 16),  # the thread's name
    *(3, 21, 23, 37, 39),  # read: dumpable, seccomp, capabilities, subreaper, no new privileges
    *(29, 30, 38, 41, 42),  # timer slack, no new privileges, huge pages
)
"""Without PR_SET_DUMPABLE, which hides a process's memory and files from a supervisor of the same user."""

FCNTL_COMMANDS = (
    *(0, 1, 2, 3, 4),  # descriptors and their flags
    *(5, 6, 7, 36, 37, 38),  # locks
    *(1030, 1031, 1032, 1034),  # descriptors, sizes of pipes, seals
)
"""Without F_SETOWN, F_SETSIG and F_SETOWN_EX, which signal other processes."""

GPU_IOCTLS = (
    (0xFF00, 0x4600),  # nvidiactl and nvidia0 …: the type F
    (0xFFFF_F000, 0),  # nvidia-uvm: plain numbers
    (0xFFFF_FFFC, 0x3000_0000),  # nvidia-uvm: its start and end
)
"""Masks and values of the requests to NVIDIA's driver that a job for a GPU may make: all of them.

Source: ``kernel-open/nvidia-uvm/uvm_ioctl.h`` and ``nv-ioctl-numbers.h`` of NVIDIA/open-gpu-kernel-modules.
"""

IOCTL_REQUESTS = (
    *(0x5401, 0x5413),  # is it a terminal, and how wide
    *(0x541B, 0x5421),  # bytes to read, non-blocking
    *(0x5450, 0x5451),  # close on exec
)
