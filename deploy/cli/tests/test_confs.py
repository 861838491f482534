# SPDX-License-Identifier: Apache-2.0
import re
from pathlib import Path

import pytest
from tests.support.paths import REPOSITORY

from updraft_cli.doctor.confs import SETTINGS, SparkConfError, spark_conf

_HEADING = re.compile(r"^### `(spark\.updraft\.[A-Za-z.]+)`$", re.MULTILINE)


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    defaults = tmp_path / "spark-defaults.conf"
    defaults.write_text("# a comment\nspark.a  1\nspark.b=two words  \nspark.c: 3\n\nspark.long  x,\\\n    y\n")
    confs = spark_conf(defaults, ["spark.a=9"])
    assert confs == {"spark.a": "9", "spark.b": "two words", "spark.c": "3", "spark.long": "x,y"}


def test_values_with_commas_are_put_together_again() -> None:
    parts = ["spark.sql.extensions=a.b", "c.d", "spark.driver.extraJavaOptions=-Dx=1", "-Dy=2"]
    assert spark_conf(None, parts) == {
        "spark.sql.extensions": "a.b,c.d",
        "spark.driver.extraJavaOptions": "-Dx=1,-Dy=2",
    }


@pytest.mark.parametrize("conf", ["spark.a", "a=b", "=b"])
def test_what_is_no_conf_is_refused(conf: str) -> None:
    with pytest.raises(SparkConfError, match=r"expected spark\.some\.setting=value"):
        spark_conf(None, [conf])


def test_the_settings_are_those_that_the_connector_has() -> None:
    reference = (REPOSITORY / "docs/reference/connector.md").read_text()
    assert set(_HEADING.findall(reference)) == SETTINGS
