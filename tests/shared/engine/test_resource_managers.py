"""What Kubernetes and YARN are given, as far as can be seen without one: settings, the JVM's
command, a pod.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from singer_spark.engine.command import KNOWN_VARIABLES
from singer_spark.engine.session import command_for
from singer_spark.engine.spark_settings import (
    SparkOptions,
    hadoop_conf,
    master_url,
    session_conf,
    shares_disk,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECRET = "planted-secret"
IMAGE = {
    "spark.kubernetes.container.image": "registry.example/spark:4.1",
    "spark.kubernetes.namespace": "etl",
}


@pytest.mark.parametrize(
    ("said", "taken"),
    [
        ("k8s://api.example:6443", "k8s://https://api.example:6443"),
        ("k8s://https://api.example", "k8s://https://api.example"),
        ("k8s://http://127.0.0.1:8001", "k8s://http://127.0.0.1:8001"),
        ("yarn", "yarn"),
        ("spark://head:7077", "spark://head:7077"),
        (None, "local[*]"),
    ],
)
def test_master_url_is_normalized_for_spark(said: str | None, taken: str) -> None:
    assert master_url(said) == taken


def test_yarn_is_configured_for_pyspark() -> None:
    assert session_conf(SparkOptions("test", master="yarn"))["spark.yarn.isPython"] == "true"
    assert "spark.yarn.isPython" not in session_conf(
        SparkOptions("test", master="spark://head:7077")
    )
    said = {"spark.yarn.isPython": "false"}
    assert (
        session_conf(SparkOptions("test", master="yarn", conf=said))["spark.yarn.isPython"]
        == "false"
    )


@pytest.mark.parametrize("master", ["yarn", "k8s://api.example:6443"])
def test_spark_submit_starts_jvm_for_managers(master: str) -> None:
    """Only spark-submit knows the manager's config folders and its JVM's class path."""
    assert "HADOOP_CONF_DIR" not in KNOWN_VARIABLES
    conf = {"spark.hadoop.fs.s3a.secret.key": SECRET}
    options = SparkOptions("test", master=master, conf=conf, jars=("/jars/driver.jar",))
    words = command_for(options).words
    assert words[0].endswith("bin/spark-submit")
    assert f"spark.master={master_url(master)}" in " ".join(words)
    assert "/jars/driver.jar" in " ".join(words)
    assert SECRET not in " ".join(words)


def pod_of(session: SparkSession, options: SparkOptions) -> dict[str, Any]:
    """The pod of an executor, as Spark makes it of our settings: the same code that would send it
    to Kubernetes.
    """
    jvm: Any = session.sparkContext._jvm
    conf = jvm.org.apache.spark.SparkConf(False)
    said = {
        **session_conf(options),
        "spark.app.name": options.app_name,
        "spark.master": master_url(options.master),
    }
    for name, value in {**said, "spark.driver.host": "driver", "spark.driver.port": "7078"}.items():
        conf.set(name, value)
    nothing = getattr(getattr(jvm.scala, "None$"), "MODULE$")
    profiles = getattr(getattr(jvm.org.apache.spark.resource, "ResourceProfile$"), "MODULE$")
    executor = jvm.org.apache.spark.deploy.k8s.KubernetesConf.createExecutorConf(
        conf, "1", "app", nothing, 0
    )
    builder = jvm.org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBuilder()
    configuration = getattr(getattr(jvm.org.apache.spark.internal.config, "package$"), "MODULE$")
    security = jvm.org.apache.spark.SecurityManager(conf, nothing, configuration.AUTH_SECRET_FILE())
    profiles.clearDefaultProfile()  # the session's own, which it makes again when it needs it
    try:
        made = builder.buildFromFeatures(
            executor, security, None, profiles.getOrCreateDefaultProfile(conf)
        ).pod()
    finally:
        profiles.clearDefaultProfile()
    text = jvm.io.fabric8.kubernetes.client.utils.Serialization
    container = yaml.safe_load(text.asYaml(made.container()))
    return {**yaml.safe_load(text.asYaml(made.pod())), "container": container}


def test_executor_pod_follows_settings_without_secrets(spark: SparkSession) -> None:
    """An executor's pod follows the settings and holds no secret."""
    conf = {**IMAGE, "spark.executor.memory": "2g", "spark.hadoop.fs.s3a.session.token": SECRET}
    options = SparkOptions("tap-spark-jdbc", master="k8s://api.example:6443", conf=conf)
    pod = pod_of(spark, options)
    container = pod["container"]
    assert container["image"] == "registry.example/spark:4.1"
    assert container["args"] == ["executor"]
    assert container["resources"]["requests"] == {"cpu": "1", "memory": "2432Mi"}
    environment = {each["name"]: each.get("value") for each in container["env"]}
    assert "-Duser.timezone=UTC" in [
        value for name, value in environment.items() if name.startswith("SPARK_JAVA_OPT")
    ]
    assert environment["SPARK_DRIVER_URL"] == "spark://CoarseGrainedScheduler@driver:7078"
    assert pod["metadata"]["labels"]["spark-app-name"] == "tap-spark-jdbc"
    assert pod["spec"]["restartPolicy"] == "Never"
    assert SECRET not in str(pod)
    # They travel in Spark's own messages, and reach the context beside its settings.
    assert SECRET in hadoop_conf(options).values()
    assert SECRET not in session_conf(options).values()
    assert shares_disk(spark)
