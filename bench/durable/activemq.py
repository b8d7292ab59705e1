"""ActiveMQ Classic with KahaDB, and its own Java client: see `ActiveMqDurable.java`."""

from collections.abc import Iterator
from contextlib import contextmanager

from ..peers.base import Deadline
from ..peers.java.program import JavaProgram, become
from .roles import ACKNOWLEDGE_EVERY, SUBSCRIPTION, TOPIC, Role, RoleOptions
from .servers import servers, until

_PROGRAM = JavaProgram(
    "ActiveMqDurable",
    "libactivemq-java",
    (
        "activemq-client",
        "activemq-broker",
        "activemq-openwire-legacy",
        "activemq-kahadb-store",
        "activemq-protobuf",
        "geronimo-jms_1.1_spec",
        "geronimo-j2ee-management-1.1-spec",
        "hawtbuf",
        "slf4j-api",
        "slf4j-nop",
    ),
    ("-Dorg.apache.activemq.kahaDB.files.skipMetadataUpdate=true",),  # as fdatasync does
)


class ActiveMqDurable:
    """One broker, which does not replicate."""

    name = "activemq-kahadb"
    is_brokerless = False
    settings = (
        "one broker, as it does not replicate; KahaDB, which syncs before it confirms (journalDiskSyncStrategy always, "
        "data only, journals written with zeros beforehand); OpenWire over TCP with its own Java client; publisher and "
        f"durable subscriber commit a transaction for {ACKNOWLEDGE_EVERY} messages, as a message outside of a "
        "transaction is synced alone."
    )

    def missing(self) -> str | None:
        return _PROGRAM.missing()

    @contextmanager
    def serve(self, options: RoleOptions) -> Iterator[list[int]]:
        with servers([_command("broker", options)], options.folder) as (server,):
            until(lambda: "ready" in server.log.read_text(), [server], Deadline(options.timeout_s))
            yield [server.pid]

    def run(self, role: Role, options: RoleOptions) -> None:
        become(_command(role.value, options))


def _command(role: str, options: RoleOptions) -> list[str]:
    arguments: dict[str, object] = {
        "--address": "127.0.0.1",
        "--port": options.port,
        "--folder": options.folder,
        "--size": options.size,
        "--warm-up": options.warm_up,
        "--count": options.count,
        "--every": ACKNOWLEDGE_EVERY,
        "--topic": TOPIC,
        "--name": f"{SUBSCRIPTION}{options.number}",
        "--timeout": f"{options.timeout_s:g}",
    }
    return _PROGRAM.command(role, arguments)
