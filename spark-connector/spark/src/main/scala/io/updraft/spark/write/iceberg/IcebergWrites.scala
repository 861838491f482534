// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write.iceberg

import scala.annotation.nowarn

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.execution.datasources.v2.{DataSourceV2Relation, WriteToDataSourceV2}
import org.apache.spark.sql.execution.{SparkPlan, SparkStrategy}
import org.apache.spark.sql.updraft.SparkInternals

import io.updraft.spark.config.WriteConf

/** Planner strategy that lets a writer make the data files of Iceberg's tables. It changes the
  * write in Spark's command, and Spark plans the command.
  */
case class IcebergWrites(session: SparkSession) extends SparkStrategy {

  override def apply(plan: LogicalPlan): Seq[SparkPlan] =
    if (WriteConf.mayWriteTables(SparkInternals.conf(session), "iceberg"))
      observed(plan).map(planLater).toSeq
    else Nil

  private def observed(plan: LogicalPlan): Option[LogicalPlan] = plan match {
    case write: AppendData =>
      observed(write.table, Some(write.query), write.write, write.writeOptions)(it =>
        write.copy(write = Some(it))
      )
    case write: OverwriteByExpression =>
      observed(write.table, Some(write.query), write.write, write.writeOptions)(it =>
        write.copy(write = Some(it))
      )
    case write: OverwritePartitionsDynamic =>
      observed(write.table, Some(write.query), write.write, write.writeOptions)(it =>
        write.copy(write = Some(it))
      )
    case write: ReplaceData =>
      observed(write.originalTable, Some(write.query), write.write)(it =>
        write.copy(write = Some(it))
      )
    case write: WriteDelta =>
      observed(write.originalTable, Some(write.query), write.write)(it =>
        write.copy(write = Some(it))
      )
    case other => observedBatch(other)
  }

  /** Return the command for a stream's batch, for which Spark still uses a deprecated command. */
  @nowarn("cat=deprecation")
  private def observedBatch(plan: LogicalPlan): Option[LogicalPlan] = plan match {
    case write: WriteToDataSourceV2 =>
      write.relation.flatMap { table =>
        observed(table, None, Some(write.batchWrite))(it => write.copy(batchWrite = it))
      }
    case _ => None
  }

  private def observed[A <: AnyRef](
      table: LogicalPlan,
      query: Option[LogicalPlan],
      write: Option[A],
      options: Map[String, String] = Map.empty
  )(changed: A => LogicalPlan): Option[LogicalPlan] = (table, write) match {
    case (relation: DataSourceV2Relation, Some(write))
        if IcebergTables.has(relation.table) && !ObservedWrite.is(write) =>
      IcebergTables.unwrapped(relation.table).map { table =>
        changed(ObservedWrite.of(write, new IcebergWrite(session, table, options, query)))
      }
    case _ => None
  }
}
