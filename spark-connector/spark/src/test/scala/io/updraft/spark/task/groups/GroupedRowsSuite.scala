// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.groups

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Ascending, SortOrder}
import org.apache.spark.sql.execution.{SortExec, SparkPlan}
import org.apache.spark.sql.updraft.LocalSpark
import org.apache.spark.sql.{DataFrame, SparkSession}
import org.scalatest.funsuite.AnyFunSuite

import io.updraft.spark.plan.GroupOrder

class GroupedRowsSuite extends AnyFunSuite {
  private val roomyPage = 1L << 20
  // A task may allocate four pages.
  private val smallPage = 16L << 10

  /** Comparison of Spark's sort with our grouped rows, for a table with one partition. */
  private final class Compared(table: DataFrame, keys: String*) {
    private val plan: SparkPlan = table.queryExecution.executedPlan
    private val columns = keys.map(key => plan.output.find(_.name == key).get)
    private val order = columns.map(SortOrder(_, Ascending))
    private val metrics = GroupMetrics.create(table.sparkSession.sparkContext)
    val grouping: GroupedRows = GroupOrder.groupedRows(columns, plan, metrics)

    def sorted: Seq[Seq[Any]] =
      LocalSpark.rows(SortExec(order, global = false, plan))(identity)

    def grouped: Seq[Seq[Any]] = {
      val grouping = this.grouping
      rows(grouping.of(_))
    }

    def rows(change: Iterator[InternalRow] => Iterator[InternalRow]): Seq[Seq[Any]] =
      LocalSpark.rows(plan)(change)

    def metric(name: String): Long = metrics.all(name).value
  }

  private def table(spark: SparkSession, rows: Long, columns: String*): DataFrame =
    spark.range(0, rows, 1, 1).selectExpr(columns :+ "id": _*)

  private def assertGroupsLikeASort(spark: SparkSession, key: String): Unit = {
    val compared = new Compared(table(spark, 5000, s"$key as k"), "k")
    assert(compared.grouped == compared.sorted, key)
    assert(compared.metric("spillSize") == 0)
    assert(compared.metric("peakMemory") > 5000 * 24)
  }

  test("groups come in the order of their keys, and the rows of a group as they came") {
    LocalSpark(roomyPage) { spark =>
      for (
        key <- Seq(
          "nullif(id * 7919 % 100, 3)",
          "cast(id % 9 - 4 as byte)",
          "cast(nullif(id % 5, 2) as string)",
          "repeat(chr(65 + id % 7), cast(id % 7 * 20 as int))",
          "cast(id % 6 - 3 as decimal(38, 4))",
          "cast(id % 6 - 3 as decimal(9, 4))",
          "date_add(date '2026-01-01', cast(-id % 4 as int))",
          "id % 2 = 0",
          "cast(null as bigint)"
        )
      ) assertGroupsLikeASort(spark, key)
      val two = new Compared(table(spark, 5000, "nullif(id % 3, 1) as k", "id % 11 as l"), "l", "k")
      assert(two.grouped == two.sorted)
    }
  }

  test("rows of no bytes that Spark knows are grouped as well, and no row makes no group") {
    LocalSpark(roomyPage) { spark =>
      val compared = new Compared(table(spark, 1000, "id % 10 as k"), "k")
      val grouping = compared.grouping
      val plain = (row: InternalRow) => InternalRow(row.getLong(0), row.getLong(1))
      assert(compared.rows(rows => grouping.of(rows.map(plain))) == compared.sorted)
      assert(new Compared(table(spark, 0, "id % 10 as k"), "k").grouped.isEmpty)
    }
  }

  test("what is too much for a task's memory is sorted by Spark, which spills") {
    LocalSpark(smallPage, "spark.shuffle.spill.numElementsForceSpillThreshold" -> "2000") { spark =>
      for (key <- Seq("id % 10", "nullif(id % 10, 3)", "case when id % 3 = 0 then id % 10 end")) {
        val compared = new Compared(table(spark, 20000, s"$key as k"), "k")
        val rows = compared.grouped
        assert(rows.map(_.head) == compared.sorted.map(_.head), key)
        assert(rows.map(_.last).toSet == (0L until 20000L).toSet)
        assert(rows.length == 20000)
        assert(compared.metric("spillSize") > 0)
      }
    }
  }

  test("where a sort would have had rows in another order than they came, they have it") {
    LocalSpark(roomyPage) { spark =>
      for (
        key <- Seq(
          "nullif(id % 7, 6)",
          "nullif(id * 7919 % 100, 3)",
          "case when id % 100 > 1 then id % 13 end",
          "case when id < 500 or id > 700 then id % 13 end",
          "case when id > 500 then cast(id % 2000 as int) end",
          "case when id < 4990 then id % 3 = 0 end"
        )
      ) assertGroupsLikeASort(spark, key)
    }
  }

  test("rows that do not fit follow those of their group that did") {
    LocalSpark(smallPage) { spark =>
      for (key <- Seq("id % 10", "-(id div 1000)", "case when id % 20 > 1 then 20 - id % 20 end")) {
        val compared = new Compared(table(spark, 20000, s"cast($key as string) as k"), "k")
        assert(compared.grouped == compared.sorted, key)
        assert(compared.metric("peakMemory") > 20000 * 32)
      }
    }
  }

  test("a row that is larger than all that a task keeps is sorted with the others") {
    LocalSpark(smallPage) { spark =>
      val large = "repeat('x', case when id = 50 then 1000000 else 10 end) as text"
      val compared = new Compared(table(spark, 100, "id % 3 as k", large), "k")
      assert(compared.grouped == compared.sorted)
    }
  }

  test("a task with very many groups sorts them") {
    LocalSpark(roomyPage) { spark =>
      val groups = RowGroups.MostGroups + 1L
      val compared = new Compared(table(spark, 2 * groups, s"-(id % $groups) as k"), "k")
      assert(compared.grouped == compared.sorted)
    }
  }

  test("memory is free behind the last row, and at the end of a task that stops before") {
    LocalSpark(roomyPage) { spark =>
      val compared = new Compared(table(spark, 5000, "id % 10 as k"), "k")
      val grouping = compared.grouping
      // A leak fails the task.
      assert(compared.rows(rows => grouping.of(rows).take(10)) == compared.sorted.take(10))
      assert(compared.grouped.length == 5000)
    }
  }

  test("rows that are sorted already are read as they come; keys of several forms are Spark's") {
    LocalSpark(roomyPage) { spark =>
      val sorted = table(spark, 100, "id % 10 as k").sortWithinPartitions("k", "id")
      assert(new Compared(sorted, "k").grouping == GroupedRows.FromChild)
      val zeros = table(spark, 100, "cast(id as double) as k")
      assert(new Compared(zeros, "k").grouping == GroupedRows.FromChild)
      val key = zeros.queryExecution.executedPlan.output.take(1)
      assert(GroupOrder.required(key) == key.map(SortOrder(_, Ascending)))
    }
  }
}
