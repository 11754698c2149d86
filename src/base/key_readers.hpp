// Who may read a job key's file: a setting says it, and keys/ checks it.
#pragma once

namespace cryptmpi {

enum class KeyReaders {
    owner,  // this user, or root: mode 0600 or less
    group,  // a file of root's, too, that a group of this process may read and only root can write: 0440 or less, or
            // 0640
};

}  // namespace cryptmpi
