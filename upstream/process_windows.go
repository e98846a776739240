package upstream

import (
	"fmt"
	"os/exec"
	"syscall"
	"unsafe"

	"github.com/rs/zerolog"
	"golang.org/x/sys/windows"
)

// group is the job object of a child. It is closed with us, whatever way we
// end, and the system then kills all that is in it.
type group windows.Handle

// forker starts children.
type forker struct{}

func newForker(zerolog.Logger) *forker { return &forker{} }

// start starts cmd in a job of its own. It runs from when it is in the job on,
// so that nothing that it starts can be outside.
func (*forker) start(cmd *exec.Cmd) (group, error) {
	job, err := newJob()
	if err != nil {
		return 0, err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_SUSPENDED}
	if err := ownStart(cmd); err != nil {
		windows.CloseHandle(job)
		return 0, err
	}
	if err := assign(job, uint32(cmd.Process.Pid)); err != nil {
		cmd.Process.Kill()
		ownWait(cmd)
		windows.CloseHandle(job)
		return 0, err
	}
	return group(job), nil
}

// newJob returns a job that ends with its last handle, which is ours.
func newJob() (windows.Handle, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return 0, fmt.Errorf("job object: %w", err)
	}
	limits := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{
		BasicLimitInformation: windows.JOBOBJECT_BASIC_LIMIT_INFORMATION{LimitFlags: windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE},
	}
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits)))
	if err != nil {
		windows.CloseHandle(job)
		return 0, fmt.Errorf("job object: %w", err)
	}
	return job, nil
}

// assign puts a process that was started suspended into the job, and lets it
// run.
func assign(job windows.Handle, pid uint32) error {
	process, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, pid)
	if err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	defer windows.CloseHandle(process)
	if err := windows.AssignProcessToJobObject(job, process); err != nil {
		return fmt.Errorf("process %d: job object: %w", pid, err)
	}
	return resume(pid)
}

// resume lets the threads of a process run: one, as long as it is suspended.
// Package os has closed the handle of it that the system gave.
func resume(pid uint32) error {
	all, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPTHREAD, 0)
	if err != nil {
		return fmt.Errorf("threads: %w", err)
	}
	defer windows.CloseHandle(all)
	entry := windows.ThreadEntry32{Size: uint32(unsafe.Sizeof(windows.ThreadEntry32{}))}
	for err = windows.Thread32First(all, &entry); err == nil; err = windows.Thread32Next(all, &entry) {
		if entry.OwnerProcessID != pid {
			continue
		}
		thread, err := windows.OpenThread(windows.THREAD_SUSPEND_RESUME, false, entry.ThreadID)
		if err == nil {
			_, err = windows.ResumeThread(thread)
			windows.CloseHandle(thread)
		}
		if err != nil {
			return fmt.Errorf("thread of process %d: %w", pid, err)
		}
		return nil
	}
	return fmt.Errorf("thread of process %d: %w", pid, err)
}

// ended gives the job's handle back. What should still be in the job ends.
func (*forker) ended(g group) { windows.CloseHandle(windows.Handle(g)) }

func (*forker) close() {}

// terminate is nothing on Windows: a console-less child has no signal that
// asks it to leave. It has seen its stdin close.
func (g group) terminate() {}

// kill ends every process of the job.
func (g group) kill() { _ = windows.TerminateJobObject(windows.Handle(g), 1) }

// accounting is JOBOBJECT_BASIC_ACCOUNTING_INFORMATION of winnt.h.
type accounting struct {
	TotalUserTime, TotalKernelTime, ThisPeriodTotalUserTime, ThisPeriodTotalKernelTime int64
	TotalPageFaultCount, TotalProcesses, ActiveProcesses, TotalTerminatedProcesses     uint32
}

// alive reports whether the job has a process.
func (g group) alive() bool {
	var info accounting
	err := windows.QueryInformationJobObject(windows.Handle(g), windows.JobObjectBasicAccountingInformation,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)), nil)
	return err == nil && info.ActiveProcesses > 0
}
