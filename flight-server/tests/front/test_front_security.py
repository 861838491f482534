# SPDX-License-Identifier: Apache-2.0
"""Authentication at a front: tokens, certificates and their renewal."""

import asyncio
from pathlib import Path

import grpc
import grpc.aio
import pytest
import trustme
from fake_pool import FakePool
from flight_messages import all_replies, command_request, echo_command, finish
from front_calls import SERVING, admitted, health
from front_harness import DO_EXCHANGE, Running, RunningFront
from structlog.testing import capture_logs

from updraft.protocol import TENANT_HEADER


async def test_calls_need_a_known_token_and_health_needs_none(running_front: Running, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("# of the team\nfirst\nsecond\n")
    async with running_front(FakePool(), token_file=tokens) as front:
        assert await health(front.channel) == SERVING
        assert await admitted(front.channel) is grpc.StatusCode.UNAUTHENTICATED
        for bad in ("Bearer third", "Bearer # of the team", "first", "Bearer "):
            assert await admitted(front.channel, bad) is grpc.StatusCode.UNAUTHENTICATED
        assert await admitted(front.channel, "Bearer second") is grpc.StatusCode.OK
        tokens.write_text("third\n")
        assert await admitted(front.channel, "Bearer third") is grpc.StatusCode.OK
        assert await admitted(front.channel, "Bearer second") is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("name", ["authorization", TENANT_HEADER])
async def test_a_header_that_says_two_things_says_nothing(running_front: Running, tmp_path: Path, name: str) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("first\nsecond\n")
    async with running_front(FakePool(), token_file=tokens) as front:
        token = ("authorization", "Bearer first")
        for others, said in (
            ([], grpc.StatusCode.OK),
            ([(name, "Bearer first")], grpc.StatusCode.OK),
            ([(name, "Bearer first"), (name, "Bearer second")], grpc.StatusCode.UNAUTHENTICATED),
            ([(name, "Bearer second"), (name, "Bearer first")], grpc.StatusCode.UNAUTHENTICATED),
        ):
            call = front.exchange(metadata=(token, *others))
            # The front refuses an unauthenticated client before it sends anything. A write after the end of the call
            # would make the client forget the status.
            sent = (command_request(echo_command()), finish(0)) if said is grpc.StatusCode.OK else ()
            for message in sent:
                await call.write(message)
            if sent:
                await call.done_writing()
            _, error = await all_replies(call)
            assert (error.code() if error is not None else grpc.StatusCode.OK) is said


async def test_a_token_file_that_is_taken_away_revokes_its_tokens(running_front: Running, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("first\n")
    async with running_front(FakePool(), token_file=tokens) as front:
        assert await admitted(front.channel, "Bearer first") is grpc.StatusCode.OK
        with capture_logs() as log:
            tokens.unlink()
            # Make no calls: the service has to notice by itself.
            for _ in range(600):
                if any("no token is valid any more" in line["event"] for line in log):
                    break
                await asyncio.sleep(0.05)
            else:
                pytest.fail("nobody looked at the file")
            assert await admitted(front.channel, "Bearer first") is grpc.StatusCode.UNAUTHENTICATED
            assert await health(front.channel) == SERVING
            tokens.write_text("second\n")
            assert await admitted(front.channel, "Bearer second") is grpc.StatusCode.OK


def write_certificate(authority: trustme.CA, directory: Path) -> None:
    issued = authority.issue_cert("localhost")
    issued.cert_chain_pems[0].write_to_path(directory / "tls.crt")
    issued.private_key_pem.write_to_path(directory / "tls.key")


def tls_settings(directory: Path) -> dict[str, Path]:
    return {"tls_certificate_file": directory / "tls.crt", "tls_key_file": directory / "tls.key"}


def secure_channel(front: RunningFront, credentials: grpc.ChannelCredentials) -> grpc.aio.Channel:
    # With a local subchannel pool, every channel makes its own handshake.
    options = (("grpc.use_local_subchannel_pool", 1),)
    port = front.address.rpartition(":")[2]
    return grpc.aio.secure_channel(f"localhost:{port}", credentials, options=options)


def known_client(authority: trustme.CA) -> grpc.ChannelCredentials:
    """Return the credentials of a client whose certificate the authority has signed."""
    client = authority.issue_cert("client")
    return grpc.ssl_channel_credentials(
        authority.cert_pem.bytes(), client.private_key_pem.bytes(), client.cert_chain_pems[0].bytes()
    )


async def test_a_renewed_certificate_is_served_without_a_restart(running_front: Running, tmp_path: Path) -> None:
    old, new = trustme.CA(), trustme.CA()
    write_certificate(old, tmp_path)
    async with running_front(FakePool(), **tls_settings(tmp_path)) as front:
        trusts_old = grpc.ssl_channel_credentials(old.cert_pem.bytes())
        trusts_new = grpc.ssl_channel_credentials(new.cert_pem.bytes())
        async with secure_channel(front, trusts_old) as channel:
            assert await admitted(channel) is grpc.StatusCode.OK
        write_certificate(new, tmp_path)
        async with secure_channel(front, trusts_new) as channel:
            assert await admitted(channel) is grpc.StatusCode.OK
        async with secure_channel(front, trusts_old) as channel:
            assert await admitted(channel) is grpc.StatusCode.UNAVAILABLE


async def test_a_broken_renewal_leaves_the_old_certificate_in_force(running_front: Running, tmp_path: Path) -> None:
    authority = trustme.CA()
    write_certificate(authority, tmp_path)
    async with running_front(FakePool(), **tls_settings(tmp_path)) as front:
        (tmp_path / "tls.crt").write_text("not a certificate")
        async with secure_channel(front, grpc.ssl_channel_credentials(authority.cert_pem.bytes())) as channel:
            assert await admitted(channel) is grpc.StatusCode.OK


async def test_mutual_tls_turns_away_a_client_without_a_certificate(running_front: Running, tmp_path: Path) -> None:
    authority = trustme.CA()
    write_certificate(authority, tmp_path)
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    known = known_client(authority)
    settings = {**tls_settings(tmp_path), "tls_client_ca_file": tmp_path / "ca.crt"}
    async with running_front(FakePool(), **settings) as front:
        async with secure_channel(front, known) as channel:
            assert await admitted(channel) is grpc.StatusCode.OK
        async with secure_channel(front, grpc.ssl_channel_credentials(authority.cert_pem.bytes())) as channel:
            assert await admitted(channel) is grpc.StatusCode.UNAVAILABLE


async def test_an_authority_that_is_taken_away_revokes_its_certificates(
    running_front: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("updraft.service.listeners._CERTIFIED_CONNECTION_MILLISECONDS", 200)
    authority = trustme.CA()
    write_certificate(authority, tmp_path)
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    settings = {**tls_settings(tmp_path), "tls_client_ca_file": tmp_path / "ca.crt"}
    async with (
        running_front(FakePool(), **settings) as front,
        secure_channel(front, known_client(authority)) as channel,
    ):
        begun = channel.stream_stream(DO_EXCHANGE)()
        await begun.write(command_request(echo_command()))
        await begun.read()
        trustme.CA().cert_pem.write_to_path(tmp_path / "ca.crt")
        # New calls on an open connection are refused too; running calls continue.
        for _ in range(600):
            if await admitted(channel) is grpc.StatusCode.UNAVAILABLE:
                break
            await asyncio.sleep(0.1)
        else:
            pytest.fail("the connection is as good as ever")
        await begun.write(finish(0))
        await begun.done_writing()
        assert (await all_replies(begun))[1] is None
