# SPDX-License-Identifier: Apache-2.0
"""Jobs as users write them, at least one for each family of functions, over the same shop's sales and visits.

A job is a function from a session to a DataFrame in a fixed order; `test_jobs.py` compares the results.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from tests.support.kinds_of_spark import needs_spark

_SALES = 600
_SESSION_GAP_SECONDS = 3100


def _sales(spark: SparkSession) -> DataFrame:
    """Return sales of five shops, some without a price."""
    price = F.when(F.col("id") % 11 != 0, F.round(F.col("id") * 37 % 1000 / 7, 2))
    time = F.timestamp_seconds(F.lit(1_700_000_000) + F.col("id") * 611 + F.col("id") % 3 * 200)
    return spark.range(0, _SALES, 1, 3).select(
        "id",
        F.concat(F.lit("shop-"), F.col("id") % 5).alias("shop"),
        price.alias("price"),
        (F.col("id") % 4 + 1).alias("amount"),
        time.alias("time"),
    )


def _rates(spark: SparkSession) -> DataFrame:
    """Return occasional exchange rates of each shop."""
    time = F.timestamp_seconds(F.lit(1_699_999_000) + F.col("id") * 9_001)
    shop = F.concat(F.lit("shop-"), F.col("id") % 5)
    return spark.range(0, 60, 1, 2).select(
        shop.alias("shop"), time.alias("time"), (1 + F.col("id") / 100).alias("rate")
    )


def revenue_with_tax(spark: SparkSession) -> DataFrame:
    """Call a pandas_udf with two columns and a named argument."""

    @F.pandas_udf("double")
    def taxed(price: pd.Series, amount: pd.Series, rate: pd.Series) -> pd.Series:
        return (price.fillna(0.0) * amount * (1 + rate)).round(2)

    return _sales(spark).select("id", taxed("price", rate=F.lit(0.19), amount="amount").alias("total")).orderBy("id")


def cleaned_names(spark: SparkSession) -> DataFrame:
    """Use a plain udf in a filter, a case-when and a sort."""

    @F.udf("string", useArrow=False)
    def clean(text: str) -> str:
        return text.strip().replace("shop-", "Shop no. ").title()

    named = _sales(spark).where(clean("shop") != "Shop No. 3").select("id", clean("shop").alias("name"))
    size = F.when(F.length(clean("name")) > 9, "long").otherwise(clean("name"))
    return named.select("id", size.alias("size")).orderBy(clean("size"), "id")


def parsed_shops(spark: SparkSession) -> DataFrame:
    """Call a pandas_udf that takes and returns a struct."""

    @F.pandas_udf("number int, label string")
    def parsed(sale: pd.DataFrame) -> pd.DataFrame:
        number = sale["shop"].str.removeprefix("shop-").astype("int32")
        return pd.DataFrame({"number": number, "label": sale["shop"] + " x" + sale["amount"].astype(str)})

    return _sales(spark).select("id", parsed(F.struct("shop", "amount")).alias("parsed")).orderBy("id")


def scores_of_a_model(spark: SparkSession) -> DataFrame:
    """Call a pandas_udf over iterators, which makes an expensive object once."""

    @F.pandas_udf("double")
    def score(batches: Iterator[tuple[pd.Series, pd.Series]]) -> Iterator[pd.Series]:
        weights = np.array([0.5, -0.25])
        for price, amount in batches:
            yield pd.Series(np.column_stack([price.fillna(0.0), amount]) @ weights)

    return _sales(spark).select("id", score("price", "amount").alias("score")).orderBy("id")


def quantiles_of_batches(spark: SparkSession) -> DataFrame:
    """Call an arrow_udf that uses a compute function of Arrow."""

    @F.arrow_udf("string")
    def initials(shops: pa.Array) -> pa.Array:
        return pc.utf8_upper(pc.utf8_slice_codeunits(shops, 0, 2))

    return _sales(spark).groupBy(initials("shop").alias("k")).agg(F.sum("price").alias("sum"), F.count("*").alias("n"))


def dear_sales_only(spark: SparkSession) -> DataFrame:
    """Filter and add a column with mapInPandas."""

    def dear(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            yield frame[frame["price"] > 100].assign(digits=lambda rows: rows["price"].astype(str).str.len())

    schema = "id long, shop string, price double, amount long, time timestamp, digits long"
    return _sales(spark).mapInPandas(dear, schema).orderBy("id")


def sums_of_partitions(spark: SparkSession) -> DataFrame:
    """Read everything before the first yield, with mapInArrow."""

    def summed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        amounts = [pc.sum(batch.column("amount")).as_py() for batch in batches]
        yield pa.RecordBatch.from_pydict({"batches": [len(amounts)], "amount": [sum(amounts)]})

    return _sales(spark).mapInArrow(summed, "batches long, amount long").orderBy("amount")


def centred_prices(spark: SparkSession) -> DataFrame:
    """Subtract the mean of each shop from its prices, with applyInPandas."""

    def centred(sales: pd.DataFrame) -> pd.DataFrame:
        return sales.assign(price=sales["price"] - sales["price"].mean())[["id", "shop", "price"]]

    return _sales(spark).groupBy("shop").applyInPandas(centred, "id long, shop string, price double").orderBy("id")


def lines_of_shops(spark: SparkSession) -> DataFrame:
    """Fit a least-squares line for each shop and amount, with applyInPandas and the key."""

    def fitted(key: tuple[Any, ...], sales: pd.DataFrame) -> pd.DataFrame:
        known = sales.dropna().sort_values("id")
        slope, start = np.polyfit(known["id"] - known["id"].mean(), known["price"], 1)
        return pd.DataFrame([(*key, round(slope, 6), round(start, 6))])

    schema = "shop string, amount long, slope double, start double"
    return _sales(spark).groupBy("shop", "amount").applyInPandas(fitted, schema).orderBy("shop", "amount")


def best_sales(spark: SparkSession) -> DataFrame:
    """Find the three most expensive sales of each shop, with applyInArrow."""

    def best(sales: pa.Table) -> pa.Table:
        return sales.sort_by([("price", "descending"), ("id", "ascending")]).slice(0, 3).select(["shop", "id", "price"])

    return _sales(spark).groupBy("shop").applyInArrow(best, "shop string, id long, price double").orderBy("shop", "id")


def converted_prices(spark: SparkSession) -> DataFrame:
    """Join each sale with the last rate before it, with cogrouped applyInPandas."""

    def converted(sales: pd.DataFrame, rates: pd.DataFrame) -> pd.DataFrame:
        sales, rates = sales.sort_values("time"), rates.sort_values("time")
        joined = pd.merge_asof(sales, rates[["time", "rate"]], on="time")
        return joined.assign(price=joined["price"] * joined["rate"])[["id", "shop", "price", "rate"]]

    groups = _sales(spark).groupBy("shop").cogroup(_rates(spark).groupBy("shop"))
    return groups.applyInPandas(converted, "id long, shop string, price double, rate double").orderBy("id")


def shops_without_rates(spark: SparkSession) -> DataFrame:
    """Use cogrouped applyInArrow with a side that may be empty."""

    def counted(key: tuple[pa.Scalar, ...], sales: pa.Table, rates: pa.Table) -> pa.Table:
        return pa.table({"shop": [key[0].as_py()], "sales": [sales.num_rows], "rates": [rates.num_rows]})

    some = _rates(spark).where("shop < 'shop-3'").groupBy("shop")
    groups = _sales(spark).where("shop > 'shop-0'").groupBy("shop").cogroup(some)
    return groups.applyInArrow(counted, "shop string, sales long, rates long").orderBy("shop")


def weighted_means(spark: SparkSession) -> DataFrame:
    """Aggregate two columns with a pandas_udf, next to another aggregate and under a having."""

    @F.pandas_udf("double")
    def weighted(price: pd.Series, amount: pd.Series) -> float:
        return float(np.average(price.fillna(0.0), weights=amount))

    @F.pandas_udf("double")
    def spread(price: pd.Series) -> float:
        return float(price.max() - price.min())

    means = (
        _sales(spark).groupBy("shop").agg(weighted("price", "amount").alias("mean"), spread("price").alias("spread"))
    )
    return means.where("mean > 1").orderBy("shop")


def distinct_prices(spark: SparkSession) -> DataFrame:
    """Aggregate a whole table with an arrow_udf."""

    @F.arrow_udf("long")
    def distinct(values: pa.Array) -> int:
        return int(pc.count_distinct(values).as_py())

    return _sales(spark).agg(distinct("price").alias("prices"))


def standardised_prices(spark: SparkSession) -> DataFrame:
    """Use a pandas_udf over a window: whole groups, and the last five rows."""

    @F.pandas_udf("double")
    def mean(values: pd.Series) -> float:
        return float(values.mean())

    @F.pandas_udf("double")
    def deviation(values: pd.Series) -> float:
        return float(values.std())

    shop = Window.partitionBy("shop")
    last = shop.orderBy("time").rowsBetween(-4, Window.currentRow)
    above = (F.col("price") - mean("price").over(shop)) / deviation("price").over(shop)
    return _sales(spark).select("id", above.alias("above"), mean("price").over(last).alias("lately")).orderBy("id")


def ranges_of_time(spark: SparkSession) -> DataFrame:
    """Use an arrow_udf over a window that is bounded by values."""

    @F.arrow_udf("double")
    def highest(values: pa.Array) -> float:
        return pc.max(values).as_py()  # type: ignore[no-any-return]

    seconds = F.col("time").cast("long")
    hour = Window.partitionBy("shop").orderBy(seconds).rangeBetween(-3600, 0)
    return _sales(spark).select("id", highest("price").over(hour).alias("highest")).orderBy("id")


def words(spark: SparkSession) -> DataFrame:
    """Call a udtf, registered for SQL, in a lateral join: a row for each word."""
    needs_spark((4, 0), "named arguments of table functions")

    @F.udtf(returnType="position int, word string")
    class Words:
        def eval(self, text: str, separator: str = " ") -> Iterator[tuple[int, str]]:
            yield from enumerate(text.split(separator))

    spark.udtf.register("words", Words)
    _sales(spark).createOrReplaceTempView("sales")
    return spark.sql("SELECT id, w.* FROM sales, LATERAL words(separator => '-', text => shop) w ORDER BY id, position")


def visits(spark: SparkSession) -> DataFrame:
    """Call a udtf over a partitioned, ordered table: sales that are close together are one visit."""

    class Visits:
        def __init__(self) -> None:
            self._shop, self._sales, self._total, self._last = "", 0, 0.0, -math.inf

        def eval(self, row: Row) -> Iterator[tuple[str, int, float]]:
            now = row["time"].timestamp()
            if now - self._last > _SESSION_GAP_SECONDS and self._sales:
                yield from self.terminate()
                self._sales, self._total = 0, 0.0
            self._shop, self._last = row["shop"], now
            self._sales, self._total = self._sales + 1, self._total + (row["price"] or 0.0)

        def terminate(self) -> Iterator[tuple[str, int, float]]:
            yield self._shop, self._sales, round(self._total, 2)

    visits_of = F.udtf(Visits, returnType="shop string, sales int, total double")
    return visits_of(_sales(spark).asTable().partitionBy("shop").orderBy("time")).orderBy("shop", "total")


def tables_of_arrow(spark: SparkSession) -> DataFrame:
    """Call an arrow_udtf over a table: two rows for each."""

    class Long:
        def eval(self, sales: pa.RecordBatch) -> Iterator[pa.Table]:
            for name in ("price", "amount"):
                values = sales.column(name).cast(pa.float64())
                yield pa.table({"id": sales.column("id"), "name": [name] * len(values), "value": values})

    long: Any = F.arrow_udtf(Long, returnType="id bigint, name string, value double")
    return long(_sales(spark).asTable()).orderBy("id", "name")


def sql_of_functions(spark: SparkSession) -> DataFrame:
    """Use registered functions in where, group by, having, a join and a case."""
    spark.udf.register("net", F.pandas_udf(lambda price: (price / 1.19).round(2), "double", F.PandasUDFType.SCALAR))
    spark.udf.register("tag", F.udf(lambda shop: shop[-1], "string", useArrow=False))
    _sales(spark).createOrReplaceTempView("sales")
    _rates(spark).createOrReplaceTempView("rates")
    return spark.sql(
        "SELECT tag(s.shop) AS tag, round(sum(net(price)), 2) AS net,"
        " max(CASE WHEN net(price) > 50 THEN 1 ELSE 0 END) AS dear"
        " FROM sales s JOIN (SELECT DISTINCT shop FROM rates) r ON tag(s.shop) = tag(r.shop) WHERE net(price) > 1"
        " GROUP BY tag(s.shop) HAVING sum(net(price)) > 10 ORDER BY tag"
    )


# Jobs by family of functions.
JOBS = {
    "scalar": [
        revenue_with_tax,
        cleaned_names,
        parsed_shops,
        scores_of_a_model,
        quantiles_of_batches,
        sql_of_functions,
    ],
    "map": [dear_sales_only, sums_of_partitions],
    "grouped": [centred_prices, lines_of_shops, best_sales],
    "cogroup": [converted_prices, shops_without_rates],
    "aggregate": [weighted_means, distinct_prices],
    "window": [standardised_prices, ranges_of_time],
    "udtf": [words, visits],
    "arrow_udtf": [tables_of_arrow],
}
