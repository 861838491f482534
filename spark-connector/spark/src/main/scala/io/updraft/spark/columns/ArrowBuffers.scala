// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.columns

import java.lang.reflect.Method

import org.apache.arrow.vector.{
  BaseFixedWidthVector,
  BaseLargeVariableWidthVector,
  BaseVariableWidthVector,
  BitVector,
  ValueVector
}
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnVector}
import org.apache.spark.unsafe.Platform

/** Addresses of the buffers of a vector that holds its values as Arrow does. They are valid while
  * the vector is open.
  *
  * @param validity
  *   address of the validity bitmap, which exists if the vector has a null
  * @param offsets
  *   address of the offsets; zero if all values have the same width
  * @param width
  *   bytes of a value, or of an offset if the values vary in width
  */
private[columns] final class ArrowBuffers(
    val validity: Long,
    offsets: Long,
    val data: Long,
    width: Int
) {

  /** Return whether all values have this many bytes. */
  def hasFixedWidth(bytes: Int): Boolean = offsets == 0 && width == bytes

  /** Return whether the values vary in width. */
  def hasOffsets: Boolean = offsets != 0

  /** Return where a value begins in the data. */
  def offset(row: Int): Long =
    if (width == 4) Platform.getInt(null, offsets + row * 4L).toLong
    else Platform.getLong(null, offsets + row * 8L)
}

private[columns] object ArrowBuffers {
  private val OfComet = new ClassValue[Option[ShadedArrow]] {
    override def computeValue(vector: Class[_]): Option[ShadedArrow] =
      if (vector.getName == ShadedArrow.CometVector) ShadedArrow.beside(vector) else None
  }

  /** Return the buffers of a vector; null if its values have to be read one by one. */
  def of(source: ColumnVector): ArrowBuffers = source match {
    case arrow: ArrowColumnVector => of(arrow.getValueVector)
    case _ => OfComet.get(source.getClass).map(_.buffers(source)).orNull
  }

  private def of(vector: ValueVector): ArrowBuffers = vector match {
    case _: BitVector => null
    case fixed: BaseFixedWidthVector => fixedWidth(vector, fixed.getTypeWidth)
    case _: BaseVariableWidthVector => withOffsets(vector, 4)
    case _: BaseLargeVariableWidthVector => withOffsets(vector, 8)
    case _ => null
  }

  private def fixedWidth(vector: ValueVector, width: Int): ArrowBuffers =
    new ArrowBuffers(address(vector.getValidityBuffer), 0L, address(vector.getDataBuffer), width)

  private def withOffsets(vector: ValueVector, width: Int): ArrowBuffers = new ArrowBuffers(
    address(vector.getValidityBuffer),
    address(vector.getOffsetBuffer),
    address(vector.getDataBuffer),
    width
  )

  private def address(buffer: org.apache.arrow.memory.ArrowBuf): Long = buffer.memoryAddress()
}

/** Arrow as DataFusion Comet has it in its jar, under other names. Only addresses cross, because
  * classes of two Arrows do not fit together.
  */
private final class ShadedArrow(loader: ClassLoader) {
  private def named(name: String): Class[_] =
    Class.forName(s"org.apache.comet.shaded.arrow.$name", false, loader)

  private[this] val bits = named("vector.BitVector")
  private[this] val fixed = named("vector.BaseFixedWidthVector")
  private[this] val variable = named("vector.BaseVariableWidthVector")
  private[this] val valueVector = Class.forName(ShadedArrow.CometVector, false, loader)
    .getMethod("getValueVector")
  private[this] val typeWidth = fixed.getMethod("getTypeWidth")
  private[this] val validityBuffer = buffer("getValidityBuffer")
  private[this] val offsetBuffer = buffer("getOffsetBuffer")
  private[this] val dataBuffer = buffer("getDataBuffer")
  private[this] val memoryAddress = named("memory.ArrowBuf").getMethod("memoryAddress")

  private def buffer(getter: String): Method = named("vector.ValueVector").getMethod(getter)

  /** Return the buffers of a vector of Comet's; null if its values have to be read one by one. */
  def buffers(source: ColumnVector): ArrowBuffers = {
    val vector = valueVector.invoke(source)
    def address(buffer: Method): Long =
      memoryAddress.invoke(buffer.invoke(vector)).asInstanceOf[Long]
    if (fixed.isInstance(vector) && !bits.isInstance(vector)) {
      val width = typeWidth.invoke(vector).asInstanceOf[Int]
      new ArrowBuffers(address(validityBuffer), 0L, address(dataBuffer), width)
    } else if (variable.isInstance(vector)) {
      new ArrowBuffers(address(validityBuffer), address(offsetBuffer), address(dataBuffer), 4)
    } else {
      null
    }
  }
}

private object ShadedArrow {
  val CometVector = "org.apache.comet.vector.CometPlainVector"

  /** Return the Arrow beside a class of Comet's; None if this release of Comet has another. */
  def beside(vector: Class[_]): Option[ShadedArrow] =
    try Some(new ShadedArrow(vector.getClassLoader))
    catch { case _: ReflectiveOperationException | _: LinkageError => None }
}
