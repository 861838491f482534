// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.execution.SQLExecution
import org.apache.spark.sql.updraft.SparkInternals
import org.apache.spark.{SparkEnv, TaskContext}

import io.updraft.proto.v1.{Owner, ResourceAddresses, TaskIdentity}

/** Identities of tasks and their owners, as protocol messages. */
object TaskIdentities {

  def of(context: TaskContext, connectSession: String = ""): TaskIdentity = {
    val resources = context.resources().map { case (kind, resource) =>
      kind -> ResourceAddresses
        .newBuilder()
        .addAllAddresses(resource.addresses.toSeq.asJava)
        .build()
    }
    TaskIdentity
      .newBuilder()
      .setOwner(owner(connectSession))
      .setQueryId(Option(context.getLocalProperty(SQLExecution.EXECUTION_ID_KEY)).getOrElse(""))
      .setStageId(context.stageId())
      .setStageAttemptNumber(context.stageAttemptNumber())
      .setPartitionId(context.partitionId())
      .setAttemptNumber(context.attemptNumber())
      .setTaskAttemptId(context.taskAttemptId())
      .setCpus(context.cpus())
      .putAllResources(resources.asJava)
      .putAllLocalProperties(SparkInternals.visibleProperties(context).asJava)
      .build()
  }

  /** Return the owner: this application and, in a Spark Connect server, the session. */
  def owner(connectSession: String): Owner.Builder =
    Owner
      .newBuilder()
      .setApplicationId(SparkEnv.get.conf.get("spark.app.id", ""))
      .setSessionId(connectSession)
}
