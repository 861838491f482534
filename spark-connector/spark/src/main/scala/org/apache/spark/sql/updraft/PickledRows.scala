// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

import java.util.{List => JavaList}

import scala.jdk.CollectionConverters._

import net.razorvine.pickle.Unpickler
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.util.ArrayData
import org.apache.spark.sql.execution.python.{BatchEvalPythonExec, EvaluatePython}
import org.apache.spark.sql.types.{ArrayType, DataType, StructField, StructType}

/** Pickled encoding of rows and results. The methods call Spark's code, so the encoding is always
  * Spark's own.
  */
object PickledRows {

  /** Return pickled lists of `listRows` rows each. The last list may have fewer rows. */
  def of(
      rows: Iterator[InternalRow],
      schema: StructType,
      listRows: Int,
      binaryAsBytes: Boolean
  ): Iterator[Array[Byte]] = {
    EvaluatePython.registerPicklers()
    val arguments = PickledLists.arguments(rows, schema, listRows) ++
      PythonConf.picklingArguments(binaryAsBytes)
    Defaults
      .call(BatchEvalPythonExec, "getInputIterator", arguments)
      .asInstanceOf[Iterator[Array[Byte]]]
  }

  /** Reader of pickled results of these types. */
  final class Results(types: Seq[DataType]) {
    private[this] val unpickler = new Unpickler
    private[this] val fromJava: Any => Any = EvaluatePython.makeFromJava(
      if (types.length == 1) types.head
      else StructType(types.map(StructField("", _, nullable = true)))
    )

    def load(list: Array[Byte]): JavaList[Any] =
      unpickler.loads(list).asInstanceOf[JavaList[Any]]

    /** Return the converted value. If there is only one type, the result is a value of this type;
      * otherwise, the result is a row with a value of each type.
      */
    def convert(value: Any): Any = fromJava(value)
  }

  /** Reader of pickled outputs of a table function. */
  final class Outputs(rowType: StructType) {
    private[this] val unpickler = new Unpickler
    private[this] val fromJava: Any => Any = EvaluatePython.makeFromJava(ArrayType(rowType))

    /** Return the rows of one output. The worker pickles the output as the only item of a list. A
      * row may be null.
      */
    def of(pickle: Array[Byte]): Iterator[InternalRow] =
      unpickler
        .loads(pickle)
        .asInstanceOf[JavaList[Any]]
        .asScala
        .iterator
        .flatMap(rows =>
          fromJava(rows).asInstanceOf[ArrayData].array.iterator.map(_.asInstanceOf[InternalRow])
        )
  }
}
