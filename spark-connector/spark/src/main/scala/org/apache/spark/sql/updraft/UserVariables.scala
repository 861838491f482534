// SPDX-License-Identifier: Apache-2.0
package org.apache.spark.sql.updraft

/** Filter of the environment variables that the user sets for Python. All go to the pool except
  * those that control the loader, the interpreter, Spark or the pool, which the pool would refuse
  * (proto/README.md).
  */
object UserVariables {
  private val Name = "[A-Za-z_][A-Za-z0-9_]*".r
  private val Reserved =
    Set("PATH", "IFS", "ENV", "BASH_ENV", "GCONV_PATH", "NLSPATH", "VIRTUAL_ENV")
  private val ReservedPrefixes = Seq(
    "LD_",
    "DYLD_",
    "PYTHON",
    "PYSPARK_",
    "SPARK_",
    "UPDRAFT_",
    "MALLOC_",
    "GLIBC_",
    "BASH_FUNC_"
  )

  def travels(name: String): Boolean =
    Name.matches(name) && !Reserved(name) && !ReservedPrefixes.exists(prefix =>
      name.startsWith(prefix)
    )
}
