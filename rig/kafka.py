"""Apache Kafka on loopback: one broker in KRaft mode, its jars fetched with Maven. It needs Java 17 and mvn."""

import subprocess
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka import admin as kafka_admin
from confluent_kafka.admin import AdminClient

from rig.lasting import Lasting
from rig.processes import Process, accepts, free_port

VERSION = "3.9.1"
_FETCH_S = 600
_new_topic: Any = kafka_admin.NewTopic  # type: ignore[attr-defined]  # it is public, and not in its stubs
_START_S = 120.0
_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>local</groupId><artifactId>kafka</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{VERSION}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"""


def jars(folder: Path) -> str:
    """Where the program is, fetched if it is not there yet: a class path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pom.xml").write_text(_POM)
    words = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=_FETCH_S, check=False)
    if done.returncode:
        raise RuntimeError(f"Maven could not fetch Kafka: {done.stdout[-2_000:]}")
    return f"{folder / 'jars'}/*"


class Kafka(Lasting):
    """One broker, which is its own controller. Its starter stops it."""

    def __init__(self, folder: Path, class_path: str) -> None:
        self.port, self._controller = free_port(), free_port()
        self.folder = folder / f"kafka-{self.port}"
        self.folder.mkdir(parents=True)
        self._class_path = class_path
        self._settings = self.folder / "server.properties"
        self._settings.write_text(self._properties())
        self._process = Process("kafka", self._java("kafka.Kafka", str(self._settings)), self.folder)
        self._is_formatted = False

    def _properties(self) -> str:
        return f"""process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{self._controller}
listeners=PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self._controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{self.port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={self.folder / "data"}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
auto.create.topics.enable=false
"""

    def _java(self, *words: str) -> list[str]:
        return ["java", "-Xmx512m", "-cp", self._class_path, *words]

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        if not self._is_formatted:
            format_ = (
                "kafka.tools.StorageTool",
                "format",
                "-t",
                "MkU3OEVBNTcwNTJENDM2Qk",
                "-c",
                str(self._settings),
            )
            subprocess.run(self._java(*format_), check=True, capture_output=True, timeout=_START_S)
            self._is_formatted = True
        if not self._process.is_running:
            self._process.start()
        self._process.await_ready(lambda: accepts(self.port) and self._answers(), _START_S)

    def stop(self) -> None:
        self._process.kill()

    def kill(self) -> None:
        """`kill -9`."""
        self._process.kill()

    def make_topic(self, name: str, partitions: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for made in admin.create_topics([_new_topic(name, partitions, 1)]).values():
            made.result(60)

    def consumed(self, topic: str, count: int) -> list[str]:
        """What Java's own consumer shows of a topic: headers, key and value of each record."""
        words = ["org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", self.bootstrap]
        words += ["--topic", topic, "--from-beginning", "--max-messages", str(count), "--timeout-ms", "60000"]
        words += ["--property", "print.headers=true", "--property", "print.key=true"]
        done = subprocess.run(self._java(*words), capture_output=True, text=True, timeout=_START_S, check=False)
        return done.stdout.splitlines()

    def _answers(self) -> bool:
        try:
            return bool(
                AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0}).list_topics(timeout=2).brokers
            )
        except KafkaException:
            return False
