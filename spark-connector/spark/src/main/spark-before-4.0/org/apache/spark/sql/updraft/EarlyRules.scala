// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.sql.catalyst.analysis._
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.parser.ParserInterface
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, SubqueryAlias, UnresolvedWith}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.{FunctionIdentifier, TableIdentifier}
import org.apache.spark.sql.execution.command.ExplainCommand
import org.apache.spark.sql.types.{DataType, StructType}
import org.apache.spark.sql.{SparkSession, SparkSessionExtensions}

/** Rules that run before Spark resolves functions. Spark 3.5 lets no rule of an extension run then.
  * So the parser hides the calls that Spark could not resolve, and a later rule shows them to the
  * rules first.
  */
object EarlyRules {
  def inject(
      extensions: SparkSessionExtensions,
      rule: SparkSession => Rule[LogicalPlan]
  ): Unit = {
    extensions.injectParser((_, parser) => new HidingParser(parser))
    extensions.injectResolutionRule(session => new ShowHiddenCalls(rule(session)))
  }
}

/** Rule that shows hidden calls to another rule, and to Spark if they remain. */
private final class ShowHiddenCalls(first: Rule[LogicalPlan]) extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = first(
    plan.resolveOperatorsUp { case HiddenTableCall(call) => call }.resolveExpressions {
      case HiddenCall(call) => call
    }
  )
}

/** Call of a table function that Spark does not see. */
private case class HiddenTableCall(call: UnresolvedTableValuedFunction) extends UnresolvedLeafNode

/** Call with named arguments that Spark does not see. */
private case class HiddenCall(call: UnresolvedFunction) extends LeafExpression with Unevaluable {
  override def dataType: DataType = throw new UnresolvedException("dataType")
  override def nullable: Boolean = throw new UnresolvedException("nullable")
  override lazy val resolved: Boolean = false
  override def toString: String = call.toString
}

/** Parser that hides calls in queries, in the texts of views, and in expressions. */
private final class HidingParser(parser: ParserInterface) extends ParserInterface {

  override def parsePlan(text: String): LogicalPlan = hidden(parser.parsePlan(text))

  override def parseQuery(text: String): LogicalPlan = hidden(parser.parseQuery(text))

  override def parseExpression(text: String): Expression =
    parser.parseExpression(text).transform(inExpression)

  private def hidden(plan: LogicalPlan): LogicalPlan = plan.transformUp { case node =>
    node.transformExpressions(inExpression) match {
      case call: UnresolvedTableValuedFunction => HiddenTableCall(call)
      case UnresolvedWith(child, relations) =>
        val inside = relations.map { case (name, relation) =>
          name -> hidden(relation).asInstanceOf[SubqueryAlias]
        }
        UnresolvedWith(child, inside)
      case explained: ExplainCommand =>
        explained.copy(logicalPlan = hidden(explained.logicalPlan))
      case other => other
    }
  }

  private val inExpression: PartialFunction[Expression, Expression] = {
    case query: SubqueryExpression => query.withNewPlan(hidden(query.plan))
    case call: UnresolvedFunction
        if call.arguments.exists(_.isInstanceOf[NamedArgumentExpression]) =>
      HiddenCall(call)
  }

  override def parseDataType(text: String): DataType = parser.parseDataType(text)

  override def parseTableSchema(text: String): StructType = parser.parseTableSchema(text)

  override def parseTableIdentifier(text: String): TableIdentifier =
    parser.parseTableIdentifier(text)

  override def parseFunctionIdentifier(text: String): FunctionIdentifier =
    parser.parseFunctionIdentifier(text)

  override def parseMultipartIdentifier(text: String): Seq[String] =
    parser.parseMultipartIdentifier(text)
}
