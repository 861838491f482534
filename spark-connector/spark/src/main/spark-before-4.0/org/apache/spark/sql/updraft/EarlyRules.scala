// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import org.apache.spark.sql.catalyst.analysis._
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.parser.ParserInterface
import org.apache.spark.sql.catalyst.plans.logical.{
  DescribeFunction,
  LogicalPlan,
  SubqueryAlias,
  UnresolvedWith
}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.{FunctionIdentifier, TableIdentifier}
import org.apache.spark.sql.execution.command.{DescribeQueryCommand, ExplainCommand}
import org.apache.spark.sql.types.{DataType, StructType}
import org.apache.spark.sql.{SparkSession, SparkSessionExtensions}

/** Rules that run before Spark resolves functions. In Spark 3.5, rules of an extension cannot run
  * that early. So the parser hides the names of functions that Spark itself does not know. Later, a
  * resolution rule reveals the names, applies the rules, and leaves unresolved names to Spark.
  */
object EarlyRules {
  def inject(
      extensions: SparkSessionExtensions,
      rule: SparkSession => Rule[LogicalPlan]
  ): Unit = {
    extensions.injectParser((session, parser) => new HidingParser(session, parser))
    extensions.injectResolutionRule(session => new ShowHiddenNames(rule(session)))
  }
}

/** Rule that reveals hidden names and applies `first` to them. */
private final class ShowHiddenNames(first: Rule[LogicalPlan]) extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = first(
    plan.resolveOperatorsUp {
      case HiddenTableCall(name, arguments) => UnresolvedTableValuedFunction(name, arguments)
      case HiddenDescription(description) => description
    }.resolveExpressions { case hidden: HiddenCall => hidden.shown }
  )
}

/** Call of a table function that is hidden from Spark. The arguments stay visible, because they may
  * contain parameters of a query and names of common table expressions.
  */
private case class HiddenTableCall(name: Seq[String], arguments: Seq[Expression])
    extends UnresolvedLeafNode

/** DESCRIBE of a function whose name is hidden from Spark. */
private case class HiddenDescription(description: DescribeFunction) extends UnresolvedLeafNode

/** Call that is hidden from Spark. The arguments and the condition of FILTER stay visible. */
private case class HiddenCall(call: UnresolvedFunction, children: Seq[Expression])
    extends Expression
    with Unevaluable {
  def shown: Expression = call.withNewChildren(children)

  override def dataType: DataType = throw new UnresolvedException("dataType")
  override def nullable: Boolean = throw new UnresolvedException("nullable")
  override lazy val resolved: Boolean = false
  override def sql: String = shown.sql
  override def toString: String = shown.toString

  override protected def withNewChildrenInternal(changed: IndexedSeq[Expression]): HiddenCall =
    copy(children = changed)
}

/** Parser that hides names of functions in queries, in the texts of views, in DESCRIBE, and in
  * expressions. It does not hide functions that Spark knows by a one-part name.
  */
private final class HidingParser(session: SparkSession, parser: ParserInterface)
    extends ParserInterface {

  override def parsePlan(text: String): LogicalPlan = hidden(parser.parsePlan(text))

  override def parseQuery(text: String): LogicalPlan = hidden(parser.parseQuery(text))

  override def parseExpression(text: String): Expression =
    parser.parseExpression(text).transform(inExpression)

  private def hidden(plan: LogicalPlan): LogicalPlan = plan.transformUp { case node =>
    node.transformExpressions(inExpression) match {
      case UnresolvedTableValuedFunction(name, arguments) if !isSparks(name, tableFunctions) =>
        HiddenTableCall(name, arguments)
      case description @ DescribeFunction(function: UnresolvedFunctionName, _)
          if !isSparks(function.multipartIdentifier, functions) &&
            !isSparks(function.multipartIdentifier, tableFunctions) =>
        HiddenDescription(description)
      case UnresolvedWith(child, relations) =>
        val inside = relations.map { case (name, relation) =>
          name -> hidden(relation).asInstanceOf[SubqueryAlias]
        }
        UnresolvedWith(child, inside)
      case explained: ExplainCommand =>
        explained.copy(logicalPlan = hidden(explained.logicalPlan))
      case described: DescribeQueryCommand => described.copy(plan = hidden(described.plan))
      case other => other
    }
  }

  private val inExpression: PartialFunction[Expression, Expression] = {
    case query: SubqueryExpression => query.withNewPlan(hidden(query.plan))
    // Spark expands a star only in a call that is visible to Spark.
    case call: UnresolvedFunction
        if !isSparks(call.nameParts, functions) && !call.arguments.exists(_.isInstanceOf[Star]) =>
      HiddenCall(call, call.children)
  }

  private def functions = session.sessionState.functionRegistry

  private def tableFunctions = session.sessionState.tableFunctionRegistry

  private def isSparks(name: Seq[String], known: FunctionRegistryBase[_]): Boolean =
    name.length == 1 && known.functionExists(FunctionIdentifier(name.head))

  override def parseDataType(text: String): DataType = parser.parseDataType(text)

  override def parseTableSchema(text: String): StructType = parser.parseTableSchema(text)

  override def parseTableIdentifier(text: String): TableIdentifier =
    parser.parseTableIdentifier(text)

  override def parseFunctionIdentifier(text: String): FunctionIdentifier =
    parser.parseFunctionIdentifier(text)

  override def parseMultipartIdentifier(text: String): Seq[String] =
    parser.parseMultipartIdentifier(text)
}
