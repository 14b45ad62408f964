package store

// WriteFile writes the file of a repository without a limit on its size, and does not cache it.
func (s *Store) WriteFile(key Key, r *Repository) error { return s.write(key.file(), r) }
