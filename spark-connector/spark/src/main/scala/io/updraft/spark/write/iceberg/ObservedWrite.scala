// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write.iceberg

import java.lang.reflect.{InvocationHandler, InvocationTargetException, Method, Modifier, Proxy}

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.metric.{CustomMetric, CustomTaskMetric}
import org.apache.spark.sql.connector.write._
import org.apache.spark.sql.updraft.DriverMetrics

import io.updraft.spark.write.RemoteTableWrite

/** Handler of a proxy for Iceberg's Write or BatchWrite. It wraps the factory of the tasks'
  * writers, so that these writers use the writer service. It forwards all other calls. A proxy has
  * every method of the running Spark, whereas a subclass would have only the methods of the Spark
  * version for which it was compiled.
  */
final class ObservedWrite private (target: AnyRef, write: IcebergWrite) extends InvocationHandler {

  override def invoke(proxy: AnyRef, method: Method, arguments: Array[AnyRef]): AnyRef =
    method.getName match {
      // Spark calls this method before it computes rows for the write.
      case "toBatch" =>
        write.files
        DriverMetrics.report(write.session.sparkContext, FilesByIceberg.count(write).toSeq)
        ObservedWrite.of(call(method, arguments), write)
      case "createBatchWriterFactory" =>
        val files = write.files
        (call(method, arguments), files) match {
          case (stock: DeltaWriterFactory, Some(files)) => new RemoteDeltaFactory(stock, files)
          case (stock: DataWriterFactory, Some(files)) => new RemoteFactory(stock, files)
          case (stock, _) => stock
        }
      case "supportedCustomMetrics" =>
        call(method, arguments).asInstanceOf[Array[CustomMetric]] :+ FilesByIceberg(write)
      case "reportDriverMetrics" =>
        call(method, arguments).asInstanceOf[Array[CustomTaskMetric]] ++ FilesByIceberg.count(write)
      case "isRemote" => Boolean.box(write.reason.isEmpty)
      case "keepsOrder" => Boolean.box(write.keepsOrder)
      case "toString" => s"$target, $write"
      case "description" => s"${call(method, arguments)}, $write"
      case _ => call(method, arguments)
    }

  private def call(method: Method, arguments: Array[AnyRef]): AnyRef =
    try method.invoke(target, Option(arguments).getOrElse(Array.empty[AnyRef]): _*)
    catch { case e: InvocationTargetException => throw e.getCause }
}

object ObservedWrite {

  /** Return whether an object is a proxy that this object made. */
  def is(write: AnyRef): Boolean =
    Proxy.isProxyClass(write.getClass) &&
      Proxy.getInvocationHandler(write).isInstanceOf[ObservedWrite]

  /** Return a proxy for the write. The writer then makes the data files if `write` allows it. */
  def of[A <: AnyRef](target: A, write: IcebergWrite): A = {
    val interfaces = allInterfaces(target.getClass).filter(of => Modifier.isPublic(of.getModifiers))
    Proxy
      .newProxyInstance(
        classOf[ObservedWrite].getClassLoader,
        (interfaces :+ classOf[RemoteTableWrite]).distinct.toArray,
        new ObservedWrite(target, write)
      )
      .asInstanceOf[A]
  }

  private def allInterfaces(of: Class[_]): Seq[Class[_]] =
    if (of == null) Nil
    else of.getInterfaces.toSeq.flatMap(it => it +: allInterfaces(it)) ++
      allInterfaces(of.getSuperclass)
}

/** Factory of a task's writers. It sets the task's [[RemoteFiles]], then creates Iceberg's own
  * writer.
  */
private final class RemoteFactory(stock: DataWriterFactory, files: RemoteFiles)
    extends DataWriterFactory {

  override def createWriter(partition: Int, task: Long): DataWriter[InternalRow] = {
    RemoteFactory.begin(files)
    stock.createWriter(partition, task)
  }
}

private object RemoteFactory {

  def begin(files: RemoteFiles): Unit = {
    ParquetModel.install()
    RemoteFiles.begin(files, TaskContext.get())
  }
}

/** Factory like [[RemoteFactory]], for a write of deletes and rows. */
private final class RemoteDeltaFactory(stock: DeltaWriterFactory, files: RemoteFiles)
    extends DeltaWriterFactory {

  override def createWriter(partition: Int, task: Long): DeltaWriter[InternalRow] = {
    RemoteFactory.begin(files)
    stock.createWriter(partition, task)
  }
}
