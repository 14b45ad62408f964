package faulty

import "github.com/hanwen/go-fuse/v2/fuse"

// The methods implement [fuse.RawFileSystem]. Operations that do not change anything are those of the embedded one.

// Mkdir creates a directory.
func (d *Disk) Mkdir(cancel <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	if s := d.try("mkdir"); s != fuse.OK {
		return s
	}
	return d.RawFileSystem.Mkdir(cancel, in, name, out)
}

// Unlink deletes a file.
func (d *Disk) Unlink(cancel <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	if s := d.try("unlink"); s != fuse.OK {
		return s
	}
	return d.RawFileSystem.Unlink(cancel, in, name)
}

// Rmdir deletes a directory.
func (d *Disk) Rmdir(cancel <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	if s := d.try("rmdir"); s != fuse.OK {
		return s
	}
	return d.RawFileSystem.Rmdir(cancel, in, name)
}

// Rename renames a file.
func (d *Disk) Rename(cancel <-chan struct{}, in *fuse.RenameIn, from, to string) fuse.Status {
	if s := d.try("rename"); s != fuse.OK {
		return s
	}
	return d.RawFileSystem.Rename(cancel, in, from, to)
}

// Link creates a link.
func (d *Disk) Link(cancel <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	if s := d.try("link"); s != fuse.OK {
		return s
	}
	return d.RawFileSystem.Link(cancel, in, name, out)
}

// Symlink creates a symbolic link.
func (d *Disk) Symlink(cancel <-chan struct{}, in *fuse.InHeader, to, name string, out *fuse.EntryOut) fuse.Status {
	if s := d.try("symlink"); s != fuse.OK {
		return s
	}
	return d.RawFileSystem.Symlink(cancel, in, to, name, out)
}

// Create creates and opens a file.
func (d *Disk) Create(cancel <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	if s := d.try("create"); s != fuse.OK {
		return s
	}
	return d.RawFileSystem.Create(cancel, in, name, out)
}

// Write writes to a file.
func (d *Disk) Write(cancel <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	if s := d.try("write"); s != fuse.OK {
		return 0, s
	}
	return d.RawFileSystem.Write(cancel, in, data)
}

// Writev writes to a file.
func (d *Disk) Writev(cancel <-chan struct{}, in *fuse.WriteIn, data [][]byte) (uint32, fuse.Status) {
	if s := d.try("write"); s != fuse.OK {
		return 0, s
	}
	return d.RawFileSystem.Writev(cancel, in, data)
}

// CopyFileRange copies a part of a file.
func (d *Disk) CopyFileRange(cancel <-chan struct{}, in *fuse.CopyFileRangeIn) (uint32, fuse.Status) {
	if s := d.try("copy"); s != fuse.OK {
		return 0, s
	}
	return d.RawFileSystem.CopyFileRange(cancel, in)
}

// SetAttr changes the size, mode or time of a file.
func (d *Disk) SetAttr(cancel <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	if s := d.try("setattr"); s != fuse.OK {
		return s
	}
	return d.RawFileSystem.SetAttr(cancel, in, out)
}

// Fallocate allocates room for a file.
func (d *Disk) Fallocate(cancel <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	if s := d.try("fallocate"); s != fuse.OK {
		return s
	}
	return d.RawFileSystem.Fallocate(cancel, in)
}

// Fsync syncs a file.
func (d *Disk) Fsync(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	if s := d.try("fsync"); s != fuse.OK {
		return s
	}
	return d.RawFileSystem.Fsync(cancel, in)
}

// FsyncDir syncs a directory.
func (d *Disk) FsyncDir(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	if s := d.try("fsyncdir"); s != fuse.OK {
		return s
	}
	return d.RawFileSystem.FsyncDir(cancel, in)
}
