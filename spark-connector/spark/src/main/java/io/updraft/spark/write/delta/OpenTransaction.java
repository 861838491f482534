// SPDX-License-Identifier: Apache-2.0
package io.updraft.spark.write.delta;

import org.apache.spark.sql.delta.DeltaOptions;
import org.apache.spark.sql.delta.OptimisticTransaction;
import org.apache.spark.sql.delta.files.TransactionalWrite$;
import org.apache.spark.sql.internal.SQLConf;
import scala.Option;

/**
 * Delta's transaction, made extensible from Scala, where its constructor is inaccessible.
 *
 * <p>Three classes implement a transaction. The two Java classes call members that Scala cannot
 * access. The Scala class uses types that differ between Scala 2.12 and 2.13.
 */
public abstract class OpenTransaction extends OptimisticTransaction {

  /** Create a transaction over the same snapshot as {@code begun}. */
  protected OpenTransaction(OptimisticTransaction begun) {
    super(begun.deltaLog(), begun.catalogTable(), begun.snapshot());
  }

  /** Return whether Delta shuffles the rows of a write, so that the write creates fewer files. */
  protected final boolean isOptimized(Option<DeltaOptions> options, SQLConf conf) {
    Option<Object> asked = options.flatMap(DeltaOptions::optimizeWrite);
    return asked.isDefined()
        ? (Boolean) asked.get()
        : TransactionalWrite$.MODULE$.shouldOptimizeWrite(metadata(), conf);
  }
}
