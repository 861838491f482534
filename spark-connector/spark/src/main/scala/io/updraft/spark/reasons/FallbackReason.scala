// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.reasons

import org.apache.spark.sql.types.DataType

/** Why a function stays in Spark's own Python workers: [[Support]] and [[FunctionKinds]] give it,
  * explain, the log and docs/reference/functions.md show it.
  *
  * @param name
  *   stays the same when the text gets better
  * @param text
  *   for people
  */
final case class FallbackReason(name: String, text: String) {

  /** The same, with what it was this time. */
  def about(detail: String): FallbackReason = copy(text = s"$text: $detail")

  override def toString: String = s"$text ($name)"
}

object FallbackReason {

  val Barrier: FallbackReason =
    FallbackReason("barrier", "a barrier stage needs Spark's own BarrierTaskContext")

  val ResourceProfile: FallbackReason = FallbackReason(
    "resource-profile",
    "a resource profile requests resources of the executor, which the pool cannot use"
  )

  val State: FallbackReason = FallbackReason(
    "state",
    "the function uses Spark's state store, which only a worker beside the executor can reach"
  )

  val HashSeed: FallbackReason = FallbackReason(
    "hash-seed",
    "the session sets PYTHONHASHSEED to a value other than the pool's, which is 0"
  )

  val WorkerModule: FallbackReason = FallbackReason(
    "worker-module",
    "the application replaces PySpark's worker or daemon with its own, which a pool does not run"
  )

  val DataTypes: FallbackReason = FallbackReason(
    "type",
    "the function or its input has a type that Arrow does not preserve (calendar intervals, " +
      "char and varchar, geometry and geography, structs with duplicate field names)"
  )

  val UnsignedArtifact: FallbackReason = FallbackReason(
    "unsigned-artifact",
    "the session signs its functions (`signingKeyFile`), and the driver cannot read an artifact that this one needs"
  )

  val Unreachable: FallbackReason = FallbackReason(
    "unreachable",
    "the pool is unreachable, and the session sets `fallback` to `local`"
  )

  val Unauthenticated: FallbackReason = FallbackReason(
    "unauthenticated",
    "the pool refuses the session's token, and the session sets `fallback` to `local`"
  )

  val Version: FallbackReason = FallbackReason(
    "version",
    "the pool has another version of Python, Spark or the protocol than the session, which sets `fallback` to `local`"
  )

  val Unsigned: FallbackReason = FallbackReason(
    "unsigned",
    "the pool runs only signed functions, and the session signs none (`signingKeyFile`) and sets `fallback` to `local`"
  )

  val UnknownKind: FallbackReason = FallbackReason(
    "unknown-kind",
    "this version of the connector does not support this kind of function"
  )

  def ofType(dataType: DataType): FallbackReason = DataTypes.about(dataType.sql)

  /** All that there are, in the order of the reference page. */
  val all: Seq[FallbackReason] = Seq(
    Barrier,
    ResourceProfile,
    State,
    DataTypes,
    HashSeed,
    WorkerModule,
    UnsignedArtifact,
    Unreachable,
    Unauthenticated,
    Version,
    Unsigned,
    UnknownKind
  )
}
