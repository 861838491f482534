// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.plan

import org.apache.spark.SparkException
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, UnaryNode}
import org.apache.spark.sql.updraft.SparkInternals

/** Logical aggregation with one registered aggregate. It is not an Aggregate, because Spark's rules
  * for Aggregate nodes, such as merging those of several subqueries, are valid only for Spark's own
  * functions.
  *
  * @param filter
  *   condition that selects the rows to accumulate; a group exists even if none of its rows is
  *   selected
  * @param result
  *   column of the results
  */
case class RegisteredAggregation(
    keys: Seq[NamedExpression],
    function: PythonUDAF,
    filter: Option[Expression],
    result: Attribute,
    child: LogicalPlan
) extends UnaryNode {

  override def output: Seq[Attribute] = keys.map(_.toAttribute) :+ result

  override def producedAttributes: AttributeSet = AttributeSet(output) -- child.outputSet

  override def maxRows: Option[Long] = if (keys.isEmpty) Some(1L) else child.maxRows

  /** Raise an error if Spark and the pool disagree on which values of a key are equal. The pool
    * compares Arrow values.
    */
  def requireKeys(): Unit =
    keys.find(key => SparkInternals.isCollated(key.dataType)).foreach { key =>
      throw new SparkException(
        s"${function.name}() cannot group by ${key.sql}, whose collation only Spark supports: group by a cast of it to STRING"
      )
    }

  override protected def withNewChildInternal(newChild: LogicalPlan): RegisteredAggregation =
    copy(child = newChild)
}
