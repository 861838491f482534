// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.functions

import io.updraft.spark.config.NearestName

/** Functions by their SQL names. An SQL name is a pool, the namespaces inside the pool, and a name
  * that may end in "@" and a version. If the first part is not a pool's name, the name refers to
  * the session's own pool.
  */
final class NamedFunctions(all: Pools) {

  def pools: Seq[String] = all.names

  /** Return the namespaces directly below this one. */
  def namespacesIn(namespace: Seq[String]): Seq[Seq[String]] = {
    val (_, prefix) = inPool(namespace)
    names(namespace)
      .map(_.split('.').toSeq)
      .filter(parts => parts.startsWith(prefix) && parts.length > prefix.length + 1)
      .map(parts => namespace :+ parts(prefix.length))
      .distinct
  }

  def isNamespace(namespace: Seq[String]): Boolean = {
    val (_, prefix) = inPool(namespace)
    prefix.isEmpty || names(namespace).exists(_.startsWith(prefix.mkString("", ".", ".")))
  }

  /** Return the names of the functions in this namespace, without those in nested namespaces. */
  def functionsIn(namespace: Seq[String]): Seq[String] = {
    val (_, prefix) = inPool(namespace)
    names(namespace)
      .map(_.split('.').toSeq)
      .filter(parts => parts.init == prefix)
      .map(_.last)
  }

  /** Return the function with this name; None if the pool has no such function. */
  def find(parts: Seq[String]): Option[UnboundPoolFunction] = {
    val (pool, rest) = inPool(parts)
    val (name, version) = NamedFunctions.versioned(rest.mkString("."))
    val named = all.functions(pool).filter(_.getName == name)
    val wanted =
      if (version.isEmpty) named.lastOption else named.find(_.getVersion == version)
    wanted.map(UnboundPoolFunction.of(all.endpoint(pool), _, version))
  }

  /** Return the error message for a name that no function has. */
  def missing(parts: Seq[String]): String = {
    val (pool, rest) = inPool(parts)
    val (name, version) = NamedFunctions.versioned(rest.mkString("."))
    val functions = all.functions(pool)
    val versions = functions.filter(_.getName == name).map(_.getVersion)
    val place = s"the pool at ${all.endpoint(pool)}"
    if (versions.nonEmpty)
      s"$place has no version $version of $name: it has ${versions.mkString(", ")}"
    else
      s"$place has no function $name" +
        NearestName.of(name, functions.map(_.getName)).fold("")(near => s": did you mean $near?")
  }

  private def inPool(parts: Seq[String]): (String, Seq[String]) =
    if (parts.length > 0 && all.contains(parts.head)) (parts.head, parts.tail)
    else (Pools.Default, parts)

  private def names(namespace: Seq[String]): Seq[String] =
    all.functions(inPool(namespace)._1).map(_.getName).distinct.sorted
}

object NamedFunctions {

  /** Split a name into the name and the version, which may be empty. "discount@2" is version 2 of
    * discount.
    */
  def versioned(name: String): (String, String) = name.lastIndexOf('@') match {
    case -1 => (name, "")
    case at => (name.take(at), name.drop(at + 1))
  }
}
