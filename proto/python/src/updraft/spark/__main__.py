# SPDX-License-Identifier: Apache-2.0
"""Command `python -m updraft.spark`, which prints the confs that a cluster's jobs need to use Updraft."""

import argparse
import sys
from collections.abc import Sequence

from updraft.spark.jars import EXTENSIONS, JARS, WORKER_PLUGIN, jar, launcher

_SCHEMES = ("grpc://", "grpc+tcp://", "grpc+tls://", "grpc+unix://")
_PLACEHOLDER = "grpc://HOST:8815"
_EXAMPLES = """examples:
  python -m updraft.spark --endpoint grpc://updraft-pool-default.data:8815 >> $SPARK_HOME/conf/spark-defaults.conf
  spark-submit --jars $(python -m updraft.spark --jar) job.py
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the confs, or with --jar only the jar's path; return 1 if there is no jar or an endpoint is invalid."""
    options = _options(arguments)
    try:
        path = jar(options.spark, scala=options.scala)
    except (ValueError, ModuleNotFoundError) as error:
        sys.stderr.write(f"updraft.spark: {error}\n")
        return 1
    if options.jar:
        sys.stdout.write(f"{path}\n")
        return 0
    for option, value in (("--endpoint", options.endpoint), ("--writer-endpoint", options.writer_endpoint)):
        if value and not value.startswith(_SCHEMES):
            sys.stderr.write(f"updraft.spark: {option}: {value!r} does not begin with any of {', '.join(_SCHEMES)}\n")
            return 1
    if options.endpoint == _PLACEHOLDER:
        sys.stderr.write(f"updraft.spark: {_PLACEHOLDER} is a placeholder: name your pool with --endpoint\n")
    confs = {
        "spark.jars": str(path),
        "spark.sql.extensions": EXTENSIONS,
        "spark.updraft.udf.endpoint": options.endpoint,
    }
    if options.writer_endpoint:
        confs["spark.updraft.write.endpoint"] = options.writer_endpoint
    if options.python_workers:
        confs |= {
            "spark.plugins": WORKER_PLUGIN,
            "spark.pyspark.python": str(launcher()),
            # spark-submit would start the driver with the launcher, too.
            "spark.pyspark.driver.python": "python3",
        }
    width = max(map(len, confs))
    sys.stdout.writelines(f"{name:{width}}  {value}\n" for name, value in confs.items())
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m updraft.spark",
        description="Print the confs with which the jobs of a cluster use Updraft, as spark-defaults.conf takes them.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--spark",
        metavar="VERSION",
        help=f"the cluster's Spark: {', '.join(JARS)} (default: the PySpark installed here)",
    )
    parser.add_argument(
        "--scala", metavar="VERSION", help="the Scala of the cluster's Spark, such as 2.12 (default: that of PySpark)"
    )
    parser.add_argument("--jar", action="store_true", help="print the path of the connector's jar and nothing else")
    parser.add_argument(
        "--endpoint", default=_PLACEHOLDER, help="address of the pool: grpc://, grpc+tls:// or grpc+unix://"
    )
    parser.add_argument(
        "--python-workers",
        action="store_true",
        help="run Spark's own Python workers on the pool too, so that executors need no Python: RDDs, data sources, "
        "streaming state",
    )
    parser.add_argument("--writer-endpoint", default="", help="address of the writer, if the cluster has one")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
