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

/** Rules that run before Spark resolves functions. In Spark 3.5, rules of an extension cannot run
  * that early. So the parser hides calls that Spark could not resolve. A resolution rule reveals
  * them, applies the rules, and leaves the remaining calls to Spark.
  */
object EarlyRules {
  def inject(
      extensions: SparkSessionExtensions,
      rule: SparkSession => Rule[LogicalPlan]
  ): Unit = {
    extensions.injectParser((session, parser) => new HidingParser(session, parser))
    extensions.injectResolutionRule(session => new ShowHiddenCalls(rule(session)))
  }
}

/** Rule that reveals hidden calls and applies `first` to them. */
private final class ShowHiddenCalls(first: Rule[LogicalPlan]) extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = first(
    plan.resolveOperatorsUp {
      case HiddenTableCall(name, arguments) => UnresolvedTableValuedFunction(name, arguments)
    }.resolveExpressions {
      case HiddenCall(call, arguments) => call.copy(arguments = arguments)
    }
  )
}

/** Call of a table function that Spark does not see. It sees the arguments, which may contain
  * parameters of a query and names of common table expressions.
  */
private case class HiddenTableCall(name: Seq[String], arguments: Seq[Expression])
    extends UnresolvedLeafNode

/** Call with named arguments that Spark does not see. It sees the arguments. */
private case class HiddenCall(call: UnresolvedFunction, arguments: Seq[Expression])
    extends Expression
    with Unevaluable {
  override def children: Seq[Expression] = arguments
  override def dataType: DataType = throw new UnresolvedException("dataType")
  override def nullable: Boolean = throw new UnresolvedException("nullable")
  override lazy val resolved: Boolean = false
  override def toString: String = call.toString

  override protected def withNewChildrenInternal(changed: IndexedSeq[Expression]): HiddenCall =
    copy(arguments = changed)
}

/** Parser that hides calls in queries, in the texts of views, and in expressions. It leaves alone
  * the functions that Spark knows by a name of one part.
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
        if call.arguments.exists(_.isInstanceOf[NamedArgumentExpression]) &&
          !isSparks(call.nameParts, session.sessionState.functionRegistry) =>
      HiddenCall(call, call.arguments)
  }

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
