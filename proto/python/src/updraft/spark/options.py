# SPDX-License-Identifier: Apache-2.0
"""Options of `local_pool` and `local_writer`; written by `make docs` from the settings of the services."""

import os
from collections.abc import Sequence
from typing import Literal, TypedDict


class ServiceOptions(TypedDict, total=False):
    """Options of both services; each is optional."""

    max_message_bytes: int
    """Maximum size of a Flight message.

    Raise it if an error names it: for clients that cannot send a larger batch in parts, such as pyarrow.flight, or for
    functions that carry more data. Updraft's own clients send larger batches in parts. Spark sessions need at least 34
    MiB. [bytes]
    """

    drain_timeout_seconds: float
    """Time for running exchanges to finish after SIGTERM; the service then ends them and tells their clients to try
    another pool or writer.

    Raise it if tasks run for longer, lower it if machines are taken away on short notice. [seconds]
    """

    listen: str
    """TCP address for Arrow Flight.

    Set it to 0.0.0.0 and a port so that other machines can connect. Port 0 lets the system choose; an empty value
    switches TCP off.
    """

    listen_unix: str | os.PathLike[str]
    """Path of a Unix socket for Arrow Flight. Set it for clients on the same machine, with TCP or instead of it."""

    listen_unix_access: Literal["owner", "group", "everyone"]
    """Users of this machine who may connect to the Unix socket.

    Set it to `group` or `everyone` if clients run as other users.
    """

    admin_listen: str
    """Address that serves only grpc.health.v1, so that probes succeed however busy the main address is.

    Set it to an address that your probes reach. An empty value switches it off.
    """

    metrics_listen: str
    """Address for Prometheus metrics at /metrics and the service's state at /status.json; a pool also serves a page for
    people at /status.

    Set it to an address that Prometheus reaches. An empty value switches all of them off.
    """

    metrics_token_file: str | os.PathLike[str]
    """File with the bearer tokens for metrics and status, in the format of token_file; in a browser, enter a token as
    the password, with any user name.

    Set it if others can reach metrics_listen. Without it, requests from other machines need no token. Requests from
    this machine need one only if the service is a pool that runs session functions, because such functions could send
    requests too. The pool then makes a token and logs the name of its file.
    """

    ready_file: str | os.PathLike[str]
    """JSON file that the service writes once it is ready, with its addresses and process ids.

    Set it for scripts that start a service on port 0.
    """

    token_file: str | os.PathLike[str]
    """File with the bearer tokens that clients may present, one per line; # starts a comment.

    Set it, or identities_file, before other machines may connect. The service reads it again when it changes. If the
    file is missing or unusable for two seconds, no token is valid until it can be read again.
    """

    identities_file: str | os.PathLike[str]
    """TOML file with the identities of clients: SHA-256 digests of their tokens and names in their certificates, with
    the tenant and the scopes (call, session, write, admin) of each; issuers of JSON Web Tokens; and caps for what each
    tenant may take.

    Set it if several tenants share the service. It holds no tokens, so it may be stored with other configuration;
    anyone who can change it decides who may do what. The service reads it again when it changes. Clients with a token
    of token_file have the scopes call, session and write, and name their tenant themselves.
    """

    insecure_no_token: bool
    """Accept clients without a token or certificate on addresses that other machines can reach.

    Set it only where the network keeps everyone else out.
    """

    tls_certificate_file: str | os.PathLike[str]
    """PEM file with the server's certificate chain; it switches TLS on.

    Set it, with tls_key_file, if tokens or data cross a network. The service reads it again when it changes.
    """

    tls_key_file: str | os.PathLike[str]
    """PEM file with the private key of the server's certificate."""

    tls_client_ca_file: str | os.PathLike[str]
    """PEM file with the authorities whose client certificates are accepted; it switches mutual TLS on.

    Set it to identify clients by certificates.
    """

    audit_file: str | os.PathLike[str]
    """File to which the service appends a JSON line before each exchange, at its end, and for each refusal: who, which
    function or file, from which address, and the outcome.

    Set it if you have to prove who ran what. `-` is standard output. If a log collector renames the file, the service
    starts a new one.
    """

    audit_failure: Literal["refuse", "count"]
    """What happens while audit_file cannot be written.

    refuse: the service refuses exchanges, so that clients try another pod, and keeps the records. count: it accepts
    exchanges, drops the records and counts them. Set it to count if work matters more than a complete record.
    """

    allow_remote_drain: bool
    """Let every client that may connect drain the service, with DoAction("updraft.drain").

    Set it if an operator without access to the machine has to drain it. SIGTERM always drains it.
    """

    client_silence_seconds: float
    """End an exchange whose client has been silent for this long while the service waits for it: no data, no keepalive,
    nothing read.

    Raise it for clients of your own that pause for longer; Updraft's clients send a keepalive every 30 seconds. 0 sets
    no limit. [seconds]
    """

    end_with_stdin: bool
    """End as after SIGTERM once standard input has ended.

    Set it if another program starts the service with a pipe: the service then ends even if that program is killed.
    """

    log_format: Literal["json", "console"]
    """Format of log lines. Set it to `console` to read them in a terminal."""

    log_level: Literal["debug", "info", "warning", "error"]
    """Lowest severity that is logged. Set it to `debug` to look for a fault."""

    trace_endpoint: str
    """OpenTelemetry collector that receives a trace of every exchange: http://host:port or https://host:port (OTLP over
    gRPC).

    Set it to see where an exchange spends its time. An empty value switches tracing off.
    """


class PoolOptions(ServiceOptions, total=False):
    """Options of `updraft-server serve`."""

    session_functions: Literal["off", "unsigned", "signed", "prefer-signed"]
    """Whether the pool runs functions that Spark sessions send as pickles; choose by how far you trust the clients.

    off: only registered functions. unsigned: anyone who may connect (with the scope session) can run any code in the
    pool. signed: only functions that a driver has signed with a key of signers_file; someone with a stolen token can
    send rows to those, but no code. prefer-signed: signed functions are checked, others run and are counted in
    updraft_session_functions_total; use it until all drivers sign.
    """

    restricted_functions: str | Sequence[str]
    """Registered function to run without network and subprocesses, as with profile restricted, in a pool whose profile
    is compatible.

    Set it for functions whose data must not leave the pool. Repeat the option, or separate names with commas.
    [functions]
    """

    signers_file: str | os.PathLike[str]
    """TOML file with the drivers whose signatures count (docs/guides/signed-functions.md).

    Set it with session_functions signed or prefer-signed. The pool reads it again when it changes, so a key or a
    function is revoked within seconds.
    """

    max_batch_bytes: int
    """Maximum size of a batch that is larger than max_message_bytes and so comes in parts, such as a single row with a
    large text.

    Raise it if an error names it, and set worker_memory_bytes to at least eight times as much. The same limit applies
    to a batch with decoded dictionary-encoded columns, and to all dictionaries of an exchange together. [bytes]
    """

    fresh_workers: int
    """Number of unused workers kept ready, in addition to workers.

    A worker serves one owner (tenant, application and Spark Connect session) until it ends. If all idle workers belong
    to others, a new owner gets a fresh worker at once, in the place of one of the idle workers. Raise this number if
    many sessions start at the same time. With 0, a new owner waits until an idle worker has ended and a new one has
    started. With session_functions off, the pool keeps no fresh workers. [workers]
    """

    idle_worker_seconds: float
    """Time for which a worker stays after its session's last exchange, with what the session has imported and left in
    memory.

    Then the pool replaces it; sooner if others need its memory. Raise it for notebooks with slow imports, lower it to
    free memory sooner. Workers of registered functions stay, except for the extra workers of tasks that need several at
    once. 0 ends a worker with its exchange. [seconds]
    """

    allow_remote_stacks: bool
    """Let every client that may connect see where the Python code of workers is (`updraft stack`, `updraft profile
    all`): names of files, lines and functions of every tenant's code, but no values.

    Set it to find out why functions hang or are slow.
    """

    worker_memory_bytes: int
    """Maximum anonymous and shared memory of a worker with all processes that its function has started, above the
    memory of the image that all workers share.

    Lower it to keep one function from taking the memory of all, raise it if an error names it. Memory is sampled four
    times a second; beyond the limit the exchange ends with an error, and its worker with it. Memory that a forked
    process shares with its parent counts for both. 0 computes three quarters of the memory of the container or machine,
    less what batched functions hold. [bytes]
    """

    worker_processes: int
    """Maximum number of processes of a worker, with all that its function has started.

    Each allows 16 threads on average. Lower it if functions are hostile, raise it if an error names it. Beyond the
    limit the exchange ends with an error, and its worker with it. The process of a batched function has the same limit.
    [processes]
    """

    worker_scratch_bytes: int
    """Maximum disk space of all files in a worker's scratch directory together, with one file per 64 KiB (at least
    10,000, at most a million).

    Set it to less than the disk has. Beyond the limit the exchange ends with an error, and its worker with it. Open
    files without a name do not count, but worker_file_bytes limits each of them. The process of a batched function has
    the same limit. [bytes]
    """

    artifact_store_bytes: int
    """Disk space for artifacts (broadcast variables and files of sessions), under the runtime directory.

    Raise it if clients are refused for lack of room, or if jobs send the same files again and again. An archive counts
    with its unpacked size, and twice while it is unpacked. When the space is used up, the tenant that uses most loses
    its least recently used artifacts; artifacts of running exchanges are kept. [bytes]
    """

    queue_limit: int
    """Maximum number of exchanges that wait for a worker.

    Further exchanges are refused with RESOURCE_EXHAUSTED and a retry hint, and try other pods. Raise it if many small
    tasks wait for few workers. [exchanges]
    """

    output_lines_per_second: int
    """Maximum number of lines per second that the function of each exchange may print to the pool's log; every further
    KiB of a line counts as another line.

    Bursts may be twice as large; excess lines are dropped and counted. Raise it to see all output of functions that
    print a lot. [lines]
    """

    batch_timeout_seconds: float
    """End a worker whose function works on one batch for longer than this.

    Set it if you know how long a batch takes at most. Time counts from when the function takes a batch until it takes
    the next one or ends, however many batches it returns meanwhile; waiting for the client does not count. Batches that
    are joined for a registered aggregate may take the sum of their limits. If the limit is set, workers use the timer
    ITIMER_REAL for it, so functions cannot (signal.alarm, signal.setitimer). Defaults to one day, which only the front
    measures. 0 sets no limit. [seconds]
    """

    batch_cpu_seconds: float
    """End a worker whose function uses more CPU time than this for one batch, in all its processes together.

    Set it to stop functions that compute without end. Time counts from when the function takes a batch until it takes
    the next one or ends, however many batches it returns meanwhile. Batches that are joined for a registered aggregate
    count as one. The process of a batched function has the same limit. Defaults to one day for each CPU of the machine.
    0 sets no limit. [seconds]
    """

    worker_silence_seconds: float
    """End a worker that hangs: it has taken no batch, returned none, and used no CPU time in any of its processes for
    this long.

    Raise it for functions that wait longer for other services. A function that computes is never ended by this limit. 0
    sets no limit. [seconds]
    """

    functions: str | Sequence[str]
    """Python module with registered functions (@function), which the pool runs by name.

    The module must be installed or on PYTHONPATH. If it cannot be imported, the pool reports a fault and serves the
    others. Repeat the option, or separate modules with commas. [modules]
    """

    load_timeout_seconds: float
    """Time limit for loading a module of functions, and for a registered function whose author has set no
    load_timeout_seconds.

    If loading takes longer, the pool reports a fault and serves everything else. Raise it for models that take long to
    load. 0 sets no limit. [seconds]
    """

    model_memory_bytes: int
    """Maximum anonymous and shared memory of the model processes of all batched functions together, above the memory of
    the image that all workers share.

    Set it if not all models fit: the pool then loads a function when it is called, and ends the processes of the least
    recently called functions to make room. It also ends a process that alone exceeds the limit. With 0, the pool loads
    all functions at the start, and ends a process that takes more than three quarters of the memory of the container or
    machine. [bytes]
    """

    max_exchanges_per_worker: int
    """Replace a worker after this many exchanges.

    Set it for functions or libraries that leak memory. 0 never replaces it. [exchanges]
    """

    writable_paths: str | Sequence[str]
    """Directory or file that session functions may write to, in addition to each worker's scratch directory.

    Set it for data that functions have to leave on a volume. All owners share it: they can read and change each other's
    files. /tmp is not writable unless it is named here. Repeat the option, or separate paths with commas. [paths]
    """

    hidden_paths: str | Sequence[str]
    """Directory or file that session functions cannot read, in addition to the pool's own secrets: its token file, its
    TLS key and its runtime directory.

    Set it for secrets of other programs on the machine. Repeat the option, or separate paths with commas. [paths]
    """

    profile: Literal["compatible", "restricted"]
    """What functions may do in addition to computing.

    compatible: use the network and start processes, as on stock PySpark. restricted: neither; opening a socket,
    starting a process or running a program raises PermissionError, in registered functions too. Set it to restricted if
    functions must not reach the network. Threads work in both. The pool does not start if the kernel cannot restrict.
    """

    shared_memory: Literal["own", "pool", "machine"]
    """The /dev/shm that workers use.

    own: each worker has a private /dev/shm, which is removed with the worker, if the kernel lets the pool's user mount
    (the layer shared-memory). Otherwise workers share /dev/shm of the machine or pod, and only functions of clients
    that name no tenant may use it: files outlive their exchange. pool: like own, but for a pool that alone uses
    /dev/shm, as in a container. If workers share it, all functions may use it, and when the last running exchange of an
    owner ends, the pool removes files that are neither open nor mapped. machine: all functions use /dev/shm of the
    machine; files stay until someone removes them. Set it to pool in a container, to machine if functions exchange
    files with other programs there. Functions cannot list a shared /dev/shm, but they can open files by name. With the
    profile restricted, own and pool never share it.
    """

    worker_file_bytes: int
    """Maximum size of each file that a worker or a process of its function writes, also in /dev/shm; beyond it a write
    fails with the error File too large.

    Raise it if functions report this error. [bytes]
    """

    worker_descriptors: int
    """Maximum number of open files, sockets and pipes of a worker and of each process that its function starts; beyond
    it a call fails with the error Too many open files.

    Lower it if functions are hostile, because no other limit counts the data that waits in their sockets. The effective
    limit is never above the service's own limit of open files, less a reserve. [descriptors]
    """

    require: str | Sequence[str]
    """Required layer of the workers' sandbox: read-only-files, shared-memory, terminals, seccomp, capabilities,
    hidden-memory, landlock, landlock-scopes, restricted.

    The pool does not start if the kernel lacks a required layer, and uses the other layers if the kernel has them. Set
    it if functions may be hostile. Repeat the option, or separate layers with commas. The log, the status and the
    metrics show which layers are on. [layers]
    """

    runtime_directory: str | os.PathLike[str]
    """Private directory for artifacts and for the workers' scratch directories.

    Set it to a disk with room for them. No other pool may use it. Defaults to a new directory under the system's
    temporary directory.
    """


class WriterOptions(ServiceOptions, total=False):
    """Options of `updraft-writer serve`."""

    quota_bytes: int
    """Maximum bytes that the writer holds at once.

    A batch counts from the credit to send it until its encoding is stored. An eighth is kept for ten tenants that hold
    little. Set it if other programs use the same memory. 0 computes the quota from the container's memory limit and
    logs every term. [bytes]
    """

    max_open_files: int
    """Maximum number of open files.

    Further files are refused with RESOURCE_EXHAUSTED and a retry hint. Raise it, and the memory, for many small files.
    With 80 files or more, an eightieth is kept for each of ten tenants. [files]
    """

    max_batch_bytes: int
    """Maximum size of a batch that is larger than max_message_bytes and comes in parts, such as a single row with a
    large text.

    Raise it if an error names it; quota_bytes has to be at least twice as much. [bytes]
    """

    storage_silence_seconds: float
    """Fail a file when one storage operation (creating the file, writing a part, publishing) has not returned for this
    long.

    Lower it if tasks should find out sooner that a storage hangs. The operation cannot be interrupted: its memory stays
    reserved until it returns. 0 sets no limit. [seconds]
    """

    encoder: Literal["auto", "cpu", "gpu"]
    """Where files are encoded.

    `auto`: on a GPU, if there is one and it will probably finish the file before the CPU. `gpu`: on the GPU, if it can
    encode the file; without a GPU the writer does not start. `cpu`: on the CPU. Set it to `gpu` to notice a missing
    driver, or to spare the CPU. Each receipt says why a file was encoded where it was.
    """

    gpu_memory_bytes: int
    """Maximum GPU memory that the writer uses.

    Set it if other programs use the same GPU. 0: 80 % of the memory that is free when the writer starts. [bytes]
    """

    sync_files: bool
    """Sync (fsync) each file on local or mounted storage, its directory, and new directories, before sending the
    receipt.

    `no_sync_files` saves that time; set it only for data that can be made again, because a crash or power failure of
    the machine can then lose or truncate files that have receipts and that Spark has committed.
    """
