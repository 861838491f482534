# SPDX-License-Identifier: Apache-2.0
import pytest

from updraft_server.ipc.batch_record import BatchRecord
from updraft_server.ipc.load import Load
from updraft_server.ipc.model_packets import (
    FUNCTIONS_PER_PACKET,
    LimitModels,
    MeasuredModels,
    MeasureModels,
    ModelEnded,
    ModelFault,
    ModelReplica,
    ModelStarted,
    ModelUsage,
)
from updraft_server.ipc.packet_codec import PacketError
from updraft_server.ipc.worker_settings import WorkerSettings
from updraft_server.ipc.worker_usage import WorkerUsage
from updraft_server.ipc.zygote_packets import (
    MAX_PACKET_BYTES,
    MAX_WORKERS_PER_PACKET,
    Claim,
    Continue,
    Exited,
    Fork,
    Forked,
    ForkFailed,
    Hello,
    Kill,
    Measure,
    Measured,
    Packet,
    Retired,
    Stop,
    ZygoteSettings,
    decode,
    encode,
)

PACKETS: list[Packet] = [
    Hello(1, "3.11", "4.3.0", ["ZWNobw=="], [["seccomp", ""]]),
    Claim(["a-1", "a-2"]),
    Fork(7),
    Forked(7, "a-1", 4711),
    ForkFailed(7, "fork: no memory"),
    ModelStarted("model-1", "f", "1", 4711),
    ModelEnded("model-1", "exited with code 1", is_expected=False),
    ModelFault("f", "1", "it broke"),
    MeasureModels(7, 8),
    LimitModels(512, 8192, 1 << 30, 1000, 60.0),
    Kill("a-1"),
    Stop("a-1"),
    Continue("a-1"),
    Measure(8, ["a-1"]),
    Exited("a-1", -9),
    Retired(),
]


@pytest.mark.parametrize("packet", PACKETS, ids=lambda packet: type(packet).__name__)
def test_a_packet_arrives_as_it_was_sent(packet: Packet) -> None:
    assert decode(encode(packet)) == packet


def test_a_measurement_arrives_with_its_fields_in_order() -> None:
    arrived = decode(encode(Measured(8, {"a-1": WorkerUsage(4096, "mark")})))
    assert isinstance(arrived, Measured)
    assert {worker: WorkerUsage(*fields) for worker, fields in arrived.usage.items()} == {
        "a-1": WorkerUsage(4096, "mark")
    }


def test_packets_about_as_many_workers_as_one_may_name_fit() -> None:
    workers = [f"abcdef-{number + 10**9}" for number in range(MAX_WORKERS_PER_PACKET)]
    usage = WorkerUsage(2**50, "f" * 16, 2**50, 2**20)
    for packet in (Claim(workers), Measure(10**9, workers), Measured(10**9, dict.fromkeys(workers, usage))):
        assert len(encode(packet)) <= MAX_PACKET_BYTES


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b'["Nothing", {}]', b'["Kill", {"pid": 1}]', b'["Fork", 1]'])
def test_what_is_not_a_packet_is_refused_in_one_way(data: bytes) -> None:
    with pytest.raises(PacketError):
        decode(data)


def test_the_settings_of_a_zygote_arrive_as_they_were_sent() -> None:
    worker = WorkerSettings(max_exchanges_per_worker=3, writable_paths=("/data",))
    settings = ZygoteSettings(
        ["a.b"], "/files", "/workers", "/scratch", worker, broken_loads=[(Load("shop", "price", "1", 5.0), "hangs")]
    )
    assert ZygoteSettings.decode(settings.encode()) == settings


def test_what_is_told_of_the_largest_models_fits_into_a_packet() -> None:
    record = BatchRecord()
    record.batches.counts = [2**53] * len(record.batches.counts)
    record.waits.counts = [2**53] * len(record.waits.counts)
    replicas = [ModelReplica(f"model-{'f' * 16}", number, 2**22, "retiring", 2**40, 10_000) for number in range(32)]
    usage = ModelUsage("n" * 200, "v" * 50, replicas, 10**9, 10**9, 10**9, record.to_plain())
    packet = MeasuredModels(1, [usage] * FUNCTIONS_PER_PACKET, are_last=False)
    data = encode(packet)
    assert len(data) < MAX_PACKET_BYTES
    measured = decode(data)
    assert isinstance(measured, MeasuredModels)
    assert ModelUsage.from_plain(measured.functions[0]) == usage
