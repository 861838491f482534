// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write.delta

import org.apache.spark.sql.delta.actions.{Metadata, Protocol}
import org.scalatest.funsuite.AnyFunSuite

class DeltaRulesSuite extends AnyFunSuite {
  private val table = Metadata()

  private def withFeature(name: String): Protocol =
    Protocol(3, 7, Some(Set.empty), Some(Set(name)))

  test("a plain table, and one with features that leave its files alone, go to the writer") {
    assert(DeltaRules.reason(Protocol(1, 2), table).isEmpty)
    assert(DeltaRules.reason(withFeature("deletionVectors"), table).isEmpty)
  }

  test("only the release of Delta that the connector was built with is known") {
    assert(DeltaRules.versionReason(io.delta.VERSION).isEmpty)
    for (version <- Seq("4.3.1", "4.40.0", "5.0.0"))
      assert(DeltaRules.versionReason(version).exists(_.contains(version)))
  }

  test("a table feature that the rules do not know stays with Delta") {
    assert(DeltaRules.reason(
      withFeature("ofTheFuture"),
      table
    ).contains("the table feature ofTheFuture"))
    val readers = Protocol(3, 7, Some(Set("ofReaders")), Some(Set("ofReaders", "appendOnly")))
    assert(DeltaRules.reason(readers, table).contains("the table feature ofReaders"))
  }

  test("a newer version of the protocol stays with Delta, whatever its features are") {
    for (protocol <- Seq(Protocol(4, 7), Protocol(3, 8)))
      assert(DeltaRules.reason(protocol, table).exists(_.startsWith("Delta's protocol in version")))
  }

  test("a table that Iceberg can read stays with Delta") {
    def reason(value: String) = DeltaRules.reason(
      Protocol(1, 2),
      Metadata(configuration = Map("delta.enableIcebergCompatV2" -> value))
    )
    assert(reason("true").contains("delta.enableIcebergCompatV2 = true"))
    assert(reason("false").isEmpty)
  }
}
