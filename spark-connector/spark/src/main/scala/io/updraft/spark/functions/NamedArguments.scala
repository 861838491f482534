// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.functions

import org.apache.spark.sql.catalyst.expressions.{Expression, NamedArgumentExpression}

/** Conversion of a call's arguments to the order of the signature. It fills in the default of an
  * omitted argument if another argument follows; the pool fills in the defaults at the end.
  */
object NamedArguments {

  /** Return the arguments in order; raise an error that shows the signature if the names do not fit
    * it.
    */
  def inOrder(function: PoolFunction, arguments: Seq[Expression]): Seq[Expression] = {
    def refuse(problem: String): Nothing = throw new UnsupportedOperationException(
      s"cannot call ${function.name}: $problem; the signature is ${function.signature}"
    )
    val (positional, rest) = arguments.span(!_.isInstanceOf[NamedArgumentExpression])
    val known = function.arguments.map(_.name)
    val named = rest.map {
      case NamedArgumentExpression(name, value) =>
        val position = known.indexWhere(_.equalsIgnoreCase(name))
        if (position < 0) refuse(s"it has no argument $name")
        if (position < positional.length) refuse(s"argument $name is given twice")
        position -> value
      case _ => refuse("a positional argument follows a named one")
    }
    val byPosition = named.toMap
    if (byPosition.size < named.length) refuse("an argument is given twice")
    val last = (byPosition.keys ++ Seq(positional.length - 1)).max
    positional ++ (positional.length to last).map { position =>
      byPosition.get(position).orElse(function.default(position)).getOrElse(
        refuse(s"argument ${known(position)} is missing, but a later one is given")
      )
    }
  }
}
