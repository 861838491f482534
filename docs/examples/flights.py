# SPDX-License-Identifier: Apache-2.0
"""Which makers' aircraft arrive earlier than a model of their flights predicts?

An ordinary PySpark job on the 336,776 flights that left New York in 2013. A scikit-learn model, fitted in the driver,
predicts the arrival delay of each flight from what is known when it leaves the gate. A pandas UDF scores all flights
with it. A second, plain UDF cleans up the makers' names. The job does not mention Updraft:

    spark-submit docs/examples/flights.py --input build/demo
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

import pandas as pd
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType
from sklearn.linear_model import Ridge
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import SplineTransformer

FEATURES = ["dep_delay", "distance", "hour", "month"]
_TRAINING_ROWS = 20_000


def fitted_model(flights: DataFrame) -> Pipeline:
    """Fit a small model of the arrival delay in minutes; its pickle is a few kilobytes."""
    sample = flights.where("arr_delay is not null").orderBy(F.xxhash64("flight", "time_hour")).limit(_TRAINING_ROWS)
    known = sample.select(*FEATURES, "arr_delay").toPandas().astype("float64")
    return make_pipeline(SplineTransformer(n_knots=6), Ridge(alpha=1.0)).fit(
        known[FEATURES].to_numpy(), known["arr_delay"].to_numpy()
    )


def expected_delay(model: Pipeline) -> Callable[..., Column]:
    """Return a pandas UDF that scores whole columns with the model; null if the departure is unknown."""

    @F.pandas_udf("double")
    def score(dep_delay: pd.Series, distance: pd.Series, hour: pd.Series, month: pd.Series) -> pd.Series:
        features = pd.concat([dep_delay, distance, hour, month], axis=1).astype("float64")
        minutes = pd.Series(model.predict(features.fillna(0.0).to_numpy()))
        return minutes.where(dep_delay.notna())

    return score  # type: ignore[no-any-return]


@F.udf(StringType(), useArrow=False)
def maker(text: str | None) -> str:
    """Return the maker's usual name: 'AIRBUS INDUSTRIE' and 'AIRBUS' are the same."""
    if text is None:
        return "unknown"
    words = [word for word in text.title().split() if word not in {"Industrie", "Corporation", "Inc", "Co", "Aircraft"}]
    return " ".join(words)


def scored(spark: SparkSession, directory: str, model: Pipeline) -> DataFrame:
    """All flights, each with its expected delay."""
    flights = spark.read.parquet(f"{directory}/flights.parquet")
    return flights.withColumn("expected", expected_delay(model)(*FEATURES))


def delays_by_maker(spark: SparkSession, directory: str, model: Pipeline) -> DataFrame:
    """Flights, mean delay, and mean delay minus expected delay, for each maker of aircraft."""
    planes = spark.read.parquet(f"{directory}/planes.parquet").select("tailnum", "manufacturer")
    flights = scored(spark, directory, model).join(F.broadcast(planes), "tailnum", "left")
    by_flight = flights.withColumn("maker", maker("manufacturer"))
    return (
        by_flight.groupBy("maker")
        .agg(
            F.count("*").alias("flights"),
            F.round(F.avg("arr_delay"), 2).alias("mean_delay"),
            F.round(F.avg(F.col("arr_delay") - F.col("expected")), 2).alias("against_expected"),
        )
        .where("flights >= 1000")
        .orderBy("against_expected", "maker")
    )


def main() -> None:
    """Run the job as a script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", required=True, help="directory with flights.parquet and planes.parquet")
    directory = os.fspath(parser.parse_args().input)
    spark = SparkSession.builder.appName("flights").getOrCreate()
    model = fitted_model(spark.read.parquet(f"{directory}/flights.parquet"))
    delays_by_maker(spark, directory, model).show(truncate=False)
    spark.stop()


if __name__ == "__main__":
    main()
