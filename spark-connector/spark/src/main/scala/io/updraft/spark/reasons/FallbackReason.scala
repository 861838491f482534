// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.reasons

import org.apache.spark.sql.types.DataType

/** Reason why a function stays in Spark's own Python workers, from [[Support]] or
  * [[FunctionKinds]]. `explain`, the log and docs/reference/functions.md show it.
  *
  * @param name
  *   stable name, independent of changes to the text
  * @param text
  *   explanation for users
  */
final case class FallbackReason(name: String, text: String) {

  /** Return this reason with details of one case. */
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
    "the function uses Spark's state store, which only workers that Spark starts can reach"
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
    "the session signs its functions (`signingKeyFile`), and the driver cannot read an artifact that this function needs"
  )

  val Unreachable: FallbackReason = local("unreachable", "the pool is unreachable")

  val Certificate: FallbackReason =
    local("certificate", "the session and the pool do not trust each other's certificates")

  val Unauthenticated: FallbackReason =
    local("unauthenticated", "the pool refuses the session's token")

  val Permission: FallbackReason =
    local("permission", "the pool does not let the session's identity run functions")

  val UnusableFile: FallbackReason =
    local("unusable-file", "the driver cannot use a file named in the session's settings")

  val Version: FallbackReason = local(
    "version",
    "the pool and the session have different versions of Python, Spark or the protocol"
  )

  val RegisteredOnly: FallbackReason =
    local("registered-only", "the pool does not run functions from Spark sessions")

  val Unsigned: FallbackReason = local(
    "unsigned",
    "the pool runs only functions signed with a key that it knows (`signingKeyFile`)"
  )

  val UnknownKind: FallbackReason = FallbackReason(
    "unknown-kind",
    "this version of the connector does not support this kind of function"
  )

  /** Return a reason that has nothing to do with the function. The query then falls back only if
    * the session allows it.
    */
  private def local(name: String, text: String): FallbackReason =
    FallbackReason(name, s"$text, and the session sets `fallback` to `local`")

  def ofType(dataType: DataType): FallbackReason = DataTypes.about(dataType.sql)

  /** All reasons, in the order of the reference page. */
  val all: Seq[FallbackReason] = Seq(
    Barrier,
    ResourceProfile,
    State,
    DataTypes,
    HashSeed,
    WorkerModule,
    UnsignedArtifact,
    Unreachable,
    Certificate,
    Unauthenticated,
    Permission,
    UnusableFile,
    Version,
    RegisteredOnly,
    Unsigned,
    UnknownKind
  )
}
