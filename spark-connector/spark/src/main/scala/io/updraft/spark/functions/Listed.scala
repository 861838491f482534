// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.functions

import io.updraft.spark.config.NearestName

/** Functions by the names that SQL has for them: a pool, namespaces inside it, and a name that may
  * end in "@" and a version. Where the first part is no pool's name, the session's own is meant.
  */
final class Listed(all: Pools) {

  def pools: Seq[String] = all.names

  /** Namespaces just below this one. */
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

  /** Names of the functions that are directly in this namespace. */
  def functionsIn(namespace: Seq[String]): Seq[String] = {
    val (_, prefix) = inPool(namespace)
    names(namespace)
      .map(_.split('.').toSeq)
      .filter(parts => parts.init == prefix)
      .map(_.last)
  }

  /** The function of this name; None: its pool has none. */
  def find(parts: Seq[String]): Option[UnboundPoolFunction] = {
    val (pool, rest) = inPool(parts)
    val (name, version) = Listed.versioned(rest.mkString("."))
    val named = all.functions(pool).filter(_.getName == name)
    val wanted =
      if (version.isEmpty) named.lastOption else named.find(_.getVersion == version)
    wanted.map(UnboundPoolFunction.of(all.endpoint(pool), _, version))
  }

  /** The error for a name that no function has. */
  def missing(parts: Seq[String]): String = {
    val (pool, rest) = inPool(parts)
    val (name, version) = Listed.versioned(rest.mkString("."))
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

object Listed {

  /** "discount@2" is version 2 of discount. */
  def versioned(name: String): (String, String) = name.lastIndexOf('@') match {
    case -1 => (name, "")
    case at => (name.take(at), name.drop(at + 1))
  }
}
