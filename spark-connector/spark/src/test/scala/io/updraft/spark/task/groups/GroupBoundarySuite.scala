// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.task.groups

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.AttributeReference
import org.apache.spark.sql.types.DoubleType
import org.scalatest.funsuite.AnyFunSuite

class GroupBoundarySuite extends AnyFunSuite {
  private val key = AttributeReference("key", DoubleType)()
  private val ordered = new OrderedBoundary(Seq(key), Seq(key))
  private val sameBytes = new SameBytesBoundary(Seq(key), Seq(key))

  private def crosses(boundary: GroupBoundary, first: Any, next: Any): Boolean = {
    boundary.enter(InternalRow(first))
    boundary.isCrossedBy(InternalRow(next))
  }

  test("another value is another group, null and NaN are values") {
    for (boundary <- Seq(ordered, sameBytes)) {
      assert(crosses(boundary, 1.0, 2.0))
      assert(crosses(boundary, null, 0.0))
      assert(!crosses(boundary, 1.0, 1.0))
      assert(!crosses(boundary, null, null))
      assert(!crosses(boundary, Double.NaN, Double.NaN))
    }
  }

  test("zero and negative zero are one group where Spark orders, and two where it compares bytes") {
    assert(!crosses(ordered, 0.0, -0.0))
    assert(crosses(sameBytes, 0.0, -0.0))
  }

  test("without keys nothing is another group") {
    for (
      boundary <- Seq(
        new OrderedBoundary(Seq.empty, Seq(key)),
        new SameBytesBoundary(Seq.empty, Seq(key))
      )
    )
      assert(!crosses(boundary, 1.0, 2.0))
  }
}
