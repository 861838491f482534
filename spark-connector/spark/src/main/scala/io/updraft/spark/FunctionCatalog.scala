// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark

import java.util.{Collections, Map => JavaMap}

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.catalyst.analysis.{NoSuchFunctionException, NoSuchNamespaceException}
import org.apache.spark.sql.connector.catalog.functions.UnboundFunction
import org.apache.spark.sql.connector.catalog.{
  FunctionCatalog => SparkFunctionCatalog,
  Identifier,
  NamespaceChange,
  SupportsNamespaces
}
import org.apache.spark.sql.util.CaseInsensitiveStringMap

import io.updraft.spark.functions.{NamedFunctions, Pools, UnboundPoolFunction}

/** Catalog of the pools' registered functions: `spark.sql.catalog.updraft =
  * io.updraft.spark.FunctionCatalog`. The catalog's namespaces are pools: `default` is the pool of
  * `spark.updraft.udf.endpoint`, and each `spark.sql.catalog.updraft.pool.NAME` adds a pool. If a
  * function's name contains a dot, the part before the dot is a namespace inside the pool.
  */
class FunctionCatalog extends SparkFunctionCatalog with SupportsNamespaces {
  private var catalog = ""
  private var listed: NamedFunctions = _

  override def initialize(name: String, options: CaseInsensitiveStringMap): Unit = {
    catalog = name
    val pools = options.asScala.map {
      case (key, address) if key.startsWith(FunctionCatalog.PoolPrefix) =>
        key.stripPrefix(FunctionCatalog.PoolPrefix) -> address
      case (key, _) => throw FunctionCatalog.unknown(name, key)
    }
    listed = new NamedFunctions(new Pools(name, pools.toMap))
  }

  override def name(): String = catalog

  override def defaultNamespace(): Array[String] = Array(Pools.Default)

  override def listNamespaces(): Array[Array[String]] = listed.pools.map(Array(_)).toArray

  override def listNamespaces(namespace: Array[String]): Array[Array[String]] =
    if (namespace.isEmpty) listNamespaces()
    else listed.namespacesIn(namespace.toSeq).map(_.toArray).toArray

  override def namespaceExists(namespace: Array[String]): Boolean =
    listed.isNamespace(namespace.toSeq)

  override def loadNamespaceMetadata(namespace: Array[String]): JavaMap[String, String] =
    if (namespaceExists(namespace)) Collections.emptyMap()
    else throw new NoSuchNamespaceException(namespace)

  override def listFunctions(namespace: Array[String]): Array[Identifier] =
    if (namespaceExists(namespace))
      listed.functionsIn(namespace.toSeq).map(Identifier.of(namespace, _)).toArray
    else throw new NoSuchNamespaceException(namespace)

  override def loadFunction(identifier: Identifier): UnboundFunction =
    find(identifier.namespace().toSeq :+ identifier.name())
      .getOrElse(throw new NoSuchFunctionException(identifier))

  /** Return the function with this name in the catalog; None if it does not exist. */
  private[spark] def find(name: Seq[String]): Option[UnboundPoolFunction] = listed.find(name)

  /** Return the error message for a name that the catalog lacks. */
  private[spark] def missing(name: Seq[String]): String = listed.missing(name)

  override def createNamespace(
      namespace: Array[String],
      metadata: JavaMap[String, String]
  ): Unit = throw FunctionCatalog.readOnly()

  override def alterNamespace(namespace: Array[String], changes: NamespaceChange*): Unit =
    throw FunctionCatalog.readOnly()

  override def dropNamespace(namespace: Array[String], cascade: Boolean): Boolean =
    throw FunctionCatalog.readOnly()
}

object FunctionCatalog {
  private val PoolPrefix = "pool."

  private def unknown(catalog: String, key: String) = new IllegalArgumentException(
    s"spark.sql.catalog.$catalog.$key is not a setting of this catalog: " +
      s"set spark.sql.catalog.$catalog.pool.<name> to name a pool"
  )

  private def readOnly() = new UnsupportedOperationException(
    "cannot create, change or drop a namespace of functions, because namespaces are pools: to add one, set " +
      "spark.sql.catalog.<catalog>.pool.<name> to its endpoint"
  )
}
