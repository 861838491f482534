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

/** Addresses of the buffers of a vector that has Arrow's memory layout. The addresses are valid
  * while the vector is open.
  *
  * @param validity
  *   address of the validity bitmap, which is read only if the vector has a null
  * @param offsets
  *   address of the offsets; zero if all values have the same width
  * @param dataBytes
  *   size of the data
  * @param width
  *   bytes of a value, or of an offset if the values vary in width
  */
private[columns] final class ArrowBuffers(
    validity: Long,
    offsets: Long,
    val data: Long,
    val dataBytes: Long,
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

  /** Call a function for each null among `count` rows, starting at row `from`, with the null's
    * position relative to `from`.
    */
  def foreachNull(from: Int, count: Int)(f: Int => Unit): Unit = {
    var i = 0
    while (i < count) {
      val row = from + i
      val byte = Platform.getByte(null, validity + (row >> 3))
      if (byte == -1 && (row & 7) == 0) {
        i += 8
      } else {
        if ((byte & (1 << (row & 7))) == 0) f(i)
        i += 1
      }
    }
  }
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

  private def fixedWidth(vector: ValueVector, width: Int): ArrowBuffers = {
    val data = vector.getDataBuffer
    val validity = vector.getValidityBuffer.memoryAddress()
    new ArrowBuffers(validity, 0L, data.memoryAddress(), data.capacity(), width)
  }

  private def withOffsets(vector: ValueVector, width: Int): ArrowBuffers = {
    val data = vector.getDataBuffer
    new ArrowBuffers(
      vector.getValidityBuffer.memoryAddress(),
      vector.getOffsetBuffer.memoryAddress(),
      data.memoryAddress(),
      data.capacity(),
      width
    )
  }
}

/** Classes of the Arrow copy that DataFusion Comet bundles under other names. Because these classes
  * differ from our Arrow classes, we use only the addresses of Comet's buffers.
  */
private final class ShadedArrow(loader: ClassLoader) {
  private def named(name: String): Class[_] =
    Class.forName(s"org.apache.comet.shaded.arrow.$name", false, loader)

  private[this] val bits = named("vector.BitVector")
  private[this] val fixed = named("vector.BaseFixedWidthVector")
  private[this] val variable = named("vector.BaseVariableWidthVector")
  private[this] val valueVector =
    Class.forName(ShadedArrow.CometVector, false, loader).getMethod("getValueVector")
  private[this] val typeWidth = fixed.getMethod("getTypeWidth")
  private[this] val validityBuffer = getter("getValidityBuffer")
  private[this] val offsetBuffer = getter("getOffsetBuffer")
  private[this] val dataBuffer = getter("getDataBuffer")
  private[this] val memoryAddress = named("memory.ArrowBuf").getMethod("memoryAddress")
  private[this] val capacity = named("memory.ArrowBuf").getMethod("capacity")

  private def getter(name: String): Method = named("vector.ValueVector").getMethod(name)

  /** Return the buffers of a Comet vector; null if its values have to be read one by one. */
  def buffers(source: ColumnVector): ArrowBuffers = {
    val vector = valueVector.invoke(source)
    val isFixed = fixed.isInstance(vector) && !bits.isInstance(vector)
    if (isFixed || variable.isInstance(vector)) {
      val data = dataBuffer.invoke(vector)
      new ArrowBuffers(
        number(memoryAddress, validityBuffer.invoke(vector)),
        if (isFixed) 0L else number(memoryAddress, offsetBuffer.invoke(vector)),
        number(memoryAddress, data),
        number(capacity, data),
        if (isFixed) typeWidth.invoke(vector).asInstanceOf[Int] else 4
      )
    } else {
      null
    }
  }

  private def number(getter: Method, buffer: AnyRef): Long =
    getter.invoke(buffer).asInstanceOf[Long]
}

private object ShadedArrow {
  val CometVector = "org.apache.comet.vector.CometPlainVector"

  /** Return Comet's shaded Arrow; None if this release of Comet has a different layout. */
  def beside(vector: Class[_]): Option[ShadedArrow] =
    try Some(new ShadedArrow(vector.getClassLoader))
    catch { case _: ReflectiveOperationException | _: LinkageError => None }
}
